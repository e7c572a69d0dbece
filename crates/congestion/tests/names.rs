use ekiden_congestion::{Tunables, control, linux_control, names};

#[test]
fn every_name_that_is_listed_is_known() {
    let tunables = std::sync::Arc::new(Tunables::default());
    for name in names() {
        assert!(control(name, &tunables).is_some() && linux_control(name, &tunables).is_some(), "{name}");
    }
    assert!(control("vegas", &tunables).is_none());
}
