//! Placeholder while the rooms are laid.
