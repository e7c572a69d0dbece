//! Reaches a destination over the overlay, on the best path that is known, and on the next one where that fails.

use ekiden_relay_proto::{Failure, FailureCode};

use super::{Destination, Upstream, exit, reach_via, turn};
use crate::config::classes::BULK;
use crate::config::route::Auto;
use crate::peer::Early;
use crate::shared::Node;

/// Reaches a destination on the first of the paths to the node near it that comes about. Where there are several, only early payload that
/// may arrive twice is sent before that.
pub async fn reach(node: &Node, auto: &Auto, to: Destination<'_>, early: Early<'_>) -> Result<Upstream, Failure> {
    let config = node.config();
    let near = match &config.overlay {
        Some(overlay) => {
            let exit = overlay.exit(auto, to.target);
            exit.map_err(|why| Failure::new(FailureCode::NodeUnreachable, format_args!("{why}")))?
                .map(|exit| (overlay, exit))
        }
        None => None,
    };
    let own = config.name.as_str();
    // What is near no node, or this one, is connected to from here.
    let Some((overlay, near)) = near.filter(|(_, near)| *near != own) else {
        return match auto.required(own).next() {
            Some(required) => {
                let text =
                    format_args!("the route wants {required} in between, and no other node is near {}", to.target);
                Err(Failure::new(FailureCode::Forbidden, text))
            }
            None => exit(node, to).await,
        };
    };
    if !overlay.may_be_exit(near, auto) {
        let text = format_args!("node {near} is near {}, and not in the regions of the route", to.target);
        return Err(Failure::new(FailureCode::Forbidden, text));
    }
    let relays = if auto.through.is_empty() { Vec::new() } else { overlay.relays(auto) };
    if let Some(required) = auto.required(near).find(|required| !relays.contains(required)) {
        let text = format_args!("the route wants {required} in between, which is no member that may relay there");
        return Err(Failure::new(FailureCode::NodeUnreachable, text));
    }
    let (_, class) = config.classes.get(to.class.unwrap_or(BULK));
    let paths = node.overlay.paths(overlay, auto, class.kind, near);
    if let [only] = &paths[..] {
        let turn = turn(node, &only.path.0, to).await?;
        let reached = reach_via(node, &only.path.0, to, early).await?;
        return Ok(Upstream { taken: Some(only.clone()), turn, ..reached });
    }
    let again = || match early {
        Early::Repeatable(bytes) => Early::Repeatable(bytes),
        _ => Early::Nothing,
    };
    let (mut first, last) = (None, paths.len() - 1);
    for (number, taken) in paths.into_iter().enumerate() {
        // What the path before has shown says that this one fails too.
        if first.is_some() && number < last && node.overlay.fails_on(&taken) {
            continue;
        }
        let turn = turn(node, &taken.path.0, to).await?;
        match reach_via(node, &taken.path.0, to, again()).await {
            Ok(reached) => return Ok(Upstream { taken: Some(taken), turn, ..reached }),
            Err(failure) if is_of_a_node(&failure) => {
                let line = format_args!("over {} to {}: {failure}; the next path is tried", taken.path, to.target);
                node.lines.info("path", near, line);
                node.overlay.path_failed(&taken);
                first.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(first.unwrap_or_else(|| Failure::new(FailureCode::NodeUnreachable, format_args!("no path to node {near}"))))
}

/// Reaches another port of the host that `first` is connected to, on the same path.
pub async fn reach_beside(node: &Node, first: &Upstream, to: Destination<'_>) -> Result<Upstream, Failure> {
    let Some(taken) = &first.taken else { return exit(node, to).await };
    let reached = reach_via(node, &taken.path.0, to, Early::Nothing).await?;
    Ok(Upstream { taken: Some(taken.clone()), ..reached })
}

/// Whether a node of the path failed, and not the destination.
fn is_of_a_node(failure: &Failure) -> bool {
    use FailureCode::{Authentication, NodeUnreachable, Overloaded, UnknownNode};
    matches!(failure.code, NodeUnreachable | UnknownNode | Authentication | Overloaded)
}
