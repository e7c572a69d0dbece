use std::io::Read;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

#[test]
fn what_is_no_regular_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let _socket = UnixListener::bind(place("socket")).unwrap();
    symlink("socket", place("link")).unwrap();
    for name in ["socket", "link"] {
        for replace in [false, true] {
            assert!(matches!(check_target(&place(name), replace), Err(TargetError::NotRegular("a socket"))));
        }
        assert!(write(&place(name), b"x").unwrap_err().to_string().contains("it is a socket"));
    }
    mkfifo(&place("pipe"), Mode::S_IRWXU).unwrap();
    for name in ["socket", "pipe", "link"] {
        assert!(write_private(&place(name), b"x").unwrap_err().to_string().contains("it is a "));
    }
    assert_eq!(what(fs::symlink_metadata(place("pipe")).unwrap().file_type()), "a pipe");
    symlink("circle", place("circle")).unwrap();
    assert!(matches!(check_target(&place("circle"), true), Err(TargetError::Failed(_))));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn what_a_file_is_to_be_in_is_made_or_is_no_directory() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    fs::write(place("file"), "x").unwrap();
    for name in ["file/b.json", "file/b/c.json"] {
        let said = check_target(&place(name), true).unwrap_err().to_string();
        let directory = place(name).parent().unwrap().display().to_string();
        assert_eq!(said, format!("cannot be written: {directory} is no directory"));
    }
    assert!(check_directory(&place("file")).unwrap_err().to_string().ends_with("/file is no directory"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    for name in ["a", "a/b/", "."] {
        check_directory(&place(name)).unwrap();
    }
    check_target(&place("c/d/e.json"), true).unwrap();
    assert!(place("c/d").is_dir() && fs::read_dir(place("c/d")).unwrap().count() == 0);
}

#[test]
fn names_of_what_is_printed_into_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    symlink("/dev/stdout", &link).unwrap();
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].map(Path::new).into_iter().chain([link.as_path()]) {
        assert_eq!(printed(name), Some(Printed::Output), "{}", name.display());
    }
    assert_eq!(printed(Path::new("/dev/stderr")), Some(Printed::Errors));
    for name in ["/dev/null", "/dev/fd/0", "/dev/fd/11", "/dev/stdout/1", "1", ""] {
        assert_eq!(printed(Path::new(name)), None, "{name}");
    }
}

#[test]
fn what_goes_into_a_stream_is_written_into_it_and_waits_for_no_reader() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    for stream in [&pipe, Path::new("/dev/null")] {
        assert!(is_stream(stream));
        check_target(stream, false).unwrap();
    }
    write(Path::new("/dev/null"), b"x").unwrap();
    assert!(write(&pipe, b"x").unwrap_err().to_string().contains("nobody reads this pipe"));
    let mut reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    write(&pipe, b"text").unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    assert!(!is_stream(folder.path()) && !is_stream(&folder.path().join("none")));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_link_stays_and_what_it_leads_to_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    write(&place("there/file"), b"1").unwrap();
    symlink("there", place("folder")).unwrap();
    symlink("folder/file", place("link")).unwrap();
    symlink("there/new", place("dangling")).unwrap();
    for (link, file) in [("link", "there/file"), ("dangling", "there/new")] {
        check_target(&place(link), true).unwrap();
        write(&place(link), b"2").unwrap();
        assert!(fs::symlink_metadata(place(link)).unwrap().is_symlink());
        assert_eq!(fs::read(place(file)).unwrap(), b"2");
    }
    assert!(matches!(check_target(&place("dangling"), false), Err(TargetError::Exists)));
    overwrite(&place("link"), b"3").unwrap_err();
    overwrite(&place("there/file"), b"3").unwrap();
    assert_eq!(
        (fs::read(place("there/file")).unwrap(), fs::read(place("there/new")).unwrap()),
        (b"3".into(), b"2".into())
    );
    assert_eq!(fs::read_dir(place("there")).unwrap().count(), 2);
}

#[test]
fn a_file_keeps_its_permissions_and_for_root_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let of = || fs::metadata(&path).map(|there| (there.mode() & 0o777, there.uid())).unwrap();
    write(&path, b"1").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    if geteuid().is_root() {
        chown(&path, Some(65534), Some(65534)).unwrap();
    }
    let before = of();
    write(&path, b"2").unwrap();
    assert_eq!((of(), fs::read(&path).unwrap()), (before, b"2".to_vec()));
}

/// Who may write a folder changes his file there with a link to one of root's, for as long as root writes it.
#[test]
fn root_gives_no_file_away_that_a_link_leads_to_meanwhile() {
    if !geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    fs::write(place("precious"), b"1").unwrap();
    fs::set_permissions(place("precious"), Permissions::from_mode(0o600)).unwrap();
    fs::write(place("own"), b"1").unwrap();
    fs::set_permissions(place("own"), Permissions::from_mode(0o666)).unwrap();
    chown(place("own"), Some(65534), Some(65534)).unwrap();
    symlink("precious", place("link")).unwrap();
    let done = AtomicBool::new(false);
    let (own, link) = (place("own"), place("link"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = renameat2(AT_FDCWD, &own, AT_FDCWD, &link, RenameFlags::RENAME_EXCHANGE);
            }
        });
        for _ in 0..2_000 {
            let _ = write(&own, b"2");
        }
        done.store(true, Ordering::Relaxed);
    });
    let there = fs::metadata(place("precious")).unwrap();
    assert_eq!((there.uid(), there.mode() & 0o777), (0, 0o600));
}

#[test]
fn a_check_leaves_a_file_alone_that_is_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.prom");
    write_with(&path, |out| {
        out.write_all(b"half")?;
        check_target(&path, true).unwrap();
        out.write_all(b" and half")
    })
    .unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"half and half");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_others_have_put_beside_a_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    fs::write(place("precious"), b"1").unwrap();
    for ending in [".check", ".partial"] {
        symlink("precious", place(&format!("a.json{ending}"))).unwrap();
        symlink("precious", place(&format!(".a.json{ending}"))).unwrap();
    }
    check_target(&place("a.json"), false).unwrap();
    for _ in 0..2 {
        write(&place("a.json"), b"2").unwrap();
        write_private(&place("a.json"), b"2").unwrap();
    }
    assert_eq!(fs::read(place("precious")).unwrap(), b"1");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6);
}

#[test]
fn a_target_is_checked_without_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    check_directory(&place("new")).unwrap();
    check_target(&place("new/a.json"), false).unwrap();
    assert_eq!(fs::read_dir(place("new")).unwrap().count(), 0);

    write(&place("old"), b"1").unwrap();
    assert!(matches!(check_target(&place("old"), false), Err(TargetError::Exists)));
    check_target(&place("old"), true).unwrap();
    assert_eq!(fs::read(place("old")).unwrap(), b"1");
    for replace in [false, true] {
        assert!(matches!(check_target(&place("new"), replace), Err(TargetError::Directory)));
        assert!(matches!(check_target(&place("old/a"), replace), Err(TargetError::Failed(_))));
        assert!(matches!(check_target(Path::new("/proc/a"), replace), Err(TargetError::Failed(_))));
    }
}

#[test]
fn an_error_names_no_other_place() {
    // Nobody may make files there.
    let said = write(Path::new("/proc/a.json"), b"1").unwrap_err().to_string();
    assert!(said.contains("os error") && !said.contains("partial") && !said.contains("at path"), "{said}");
}

#[test]
fn a_private_file_is_its_owners_whatever_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/a.json");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    write_private(&path, b"first").unwrap();
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    write_private(&path, b"2").unwrap();
    assert_eq!((mode(), fs::read(&path).unwrap()), (0o600, b"2".to_vec()));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    for text in ["first", "2"] {
        write(&path, text.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::create_dir(folder.path().join("directory")).unwrap();
    assert!(write(&folder.path().join("directory"), b"x").is_err());
    assert!(write_with(&folder.path().join("b"), |_| Err(io::ErrorKind::StorageFull.into())).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_pending_file_is_there_when_it_is_published_and_leaves_nothing_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    fs::write(&file, "before").unwrap();
    drop(Pending::write(&file, b"never").unwrap());
    let pending = Pending::write(&file, b"after").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "before");
    pending.publish().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "after");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
