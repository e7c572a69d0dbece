//! Which modules a crate has, and what they use of each other: what `circles.rs` and `order.rs` look at.
//!
//! The modules that stand in one module together are its rooms, each with all that stands inside it: those of a crate, and
//! those of every folder in it. An edge is a use of a name of another room. A name that the parent's own file takes from a
//! room counts as that room's, whoever has it from the parent.
//!
//! Not looked at: tests; what a module and its parent's own file use of each other, for a parent uses its children, and what
//! they share stands in it; methods, whose types may stand anywhere. A module that is imported whole hides what is used of
//! it: `circles.rs` refuses those.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// Names from the root of a crate to a module, or to something in it.
pub type Names = Vec<String>;

/// A crate's modules.
pub type Modules = BTreeMap<Names, Module>;

/// The rooms of a module, and of which others each uses names.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// What a module's own file names, without what is compiled for tests only.
#[derive(Debug, Default)]
pub struct Module {
    /// The paths that it imports, and the name that each has there.
    pub imports: Vec<(Names, String)>,
    /// Its other paths that begin at the crate or at a parent.
    paths: Vec<Names>,
    /// The modules that it has in files, those for tests among them.
    pub declared: BTreeSet<String>,
}

/// A path as names.
pub fn names(path: &str) -> Names {
    path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The modules below the source folder of a crate.
pub fn of_crate(folder: &Path) -> Modules {
    let mut modules = Modules::new();
    read(folder, &[], &mut modules);
    modules
}

/// The modules of a crate that is written down in a test: their paths and texts.
pub fn of_texts(modules: &[(&str, &str)]) -> Modules {
    modules.iter().map(|(path, text)| (names(path), Module::parse(path, text))).collect()
}

/// The modules below `folder`, which belongs to `parent`.
fn read(folder: &Path, parent: &[String], into: &mut Modules) {
    for path in std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_root = parent.is_empty() && ["lib", "main"].contains(&stem.as_str());
        let module = if is_root { Names::new() } else { [parent, &[stem]].concat() };
        if path.is_dir() {
            read(&path, &module, into);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && module.iter().all(|name| name != "tests")
        {
            let text = std::fs::read_to_string(&path).unwrap();
            into.insert(module, Module::parse(&path.to_string_lossy(), &text));
        }
    }
}

/// What the rooms of `parent` use of each other.
pub fn uses(modules: &Modules, parent: &[String]) -> Uses {
    let inside =
        || modules.iter().filter_map(|(path, module)| Some((path.strip_prefix(parent)?.first()?, path, module)));
    let mut uses: Uses = inside().map(|(room, ..)| (room.clone(), BTreeSet::new())).collect();
    let mut passed_on = BTreeMap::new();
    for (path, name) in modules.get(parent).into_iter().flat_map(|module| &module.imports) {
        let path = resolve(parent, path);
        if let Some([room, _, ..]) = path.strip_prefix(parent)
            && uses.contains_key(room)
        {
            passed_on.insert(name.clone(), room.clone());
        }
    }
    for (room, path, module) in inside() {
        for used in module.within_the_crate().map(|used| resolve(path, used)) {
            let Some(name) = used.strip_prefix(parent).and_then(<[String]>::first) else { continue };
            let used = if uses.contains_key(name) { Some(name) } else { passed_on.get(name) };
            uses.get_mut(room).unwrap().extend(used.filter(|used| *used != room).cloned());
        }
    }
    uses
}

/// Where a path leads that stands in `module`.
pub fn resolve(module: &[String], path: &[String]) -> Names {
    let mut to = module.to_vec();
    for name in path {
        match name.as_str() {
            "crate" => to.clear(),
            "super" => drop(to.pop()),
            "self" => {}
            _ => to.push(name.clone()),
        }
    }
    to
}

impl Module {
    fn parse(name: &str, text: &str) -> Self {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let files = file.items.iter().filter_map(|item| match item {
            Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
            _ => None,
        });
        let mut module = Self { declared: files.collect(), ..Self::default() };
        module.visit_file(&file);
        module
    }

    /// Every path that begins at the crate or at a parent.
    fn within_the_crate(&self) -> impl Iterator<Item = &Names> {
        let imports = self.imports.iter().map(|(path, _)| path).filter(|path| is_from_the_crate(path));
        imports.chain(&self.paths)
    }

    fn path(&mut self, path: Names) {
        if path.len() > 1 && is_from_the_crate(&path) {
            self.paths.push(path);
        }
    }

    fn import(&mut self, tree: &UseTree, mut path: Names) {
        match tree {
            UseTree::Path(deeper) => {
                path.push(deeper.ident.to_string());
                self.import(&deeper.tree, path);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, path.clone())),
            UseTree::Glob(_) => {
                path.push("*".to_owned());
                self.imports.push((path, "*".to_owned()));
            }
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                let name = path.iter().rfind(|name| *name != "self").cloned();
                self.imports.push((path, name.unwrap_or_default()));
            }
            UseTree::Rename(renamed) => {
                path.push(renamed.ident.to_string());
                self.imports.push((path, renamed.rename.to_string()));
            }
        }
    }

    /// A macro's words are no syntax that anybody knows: paths are names with two colons between them.
    fn tokens(&mut self, tokens: &TokenStream) {
        let mut path = Names::new();
        let mut colons = 0;
        for token in tokens.clone() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.path(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                }
                TokenTree::Group(group) => {
                    self.path(std::mem::take(&mut path));
                    self.tokens(&group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.path(std::mem::take(&mut path)),
            }
            colons = 0;
        }
        self.path(path);
    }
}

impl<'a> Visit<'a> for Module {
    fn visit_item(&mut self, item: &'a Item) {
        if !attributes(item).iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.import(&item.tree, Names::new());
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        self.visit_path(&called.path);
        self.tokens(&called.tokens);
    }

    /// `pub(in crate::a)` uses nothing of `a`.
    fn visit_visibility(&mut self, _: &'a Visibility) {}
}

fn is_from_the_crate(path: &[String]) -> bool {
    path.first().is_some_and(|first| first == "crate" || first == "super")
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
