//! `ekiden reproduce`: the papers' experiments, and what ours say of their claims.

mod list;
mod progress;
mod runs;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};
use ekiden_files::{TargetError, check_directory, make_directories, write};
use ekiden_reproduce::{Catalogue, Effort, Engine, Files, Manifest, Report, Results, Selected, table};
use ekiden_sweep::is_file;
use serde::Serialize;

use crate::out::{self, Width};
use crate::usage::{misused, whole_number};

pub use runs::{LabFails, RunsFailed};

/// The folder of the records, in that of everything.
const RECORDS: &str = "records";
/// The folder of the pictures.
const PICTURES: &str = "pictures";
/// The report's files, without their ending.
const REPORT: &str = "report";

const EXAMPLES: &str = "Examples:
    ekiden reproduce list
    ekiden reproduce S0-fig11 --engine simulator
    ekiden reproduce all --quick";

/// Run the experiments of the papers that ekiden rests on, and judge their claims.
///
/// Each experiment is a description: what the paper did, the runs that repeat it, and its claims in numbers. What has no
/// record yet is run, in the simulator and on the kernel's TCP; then every claim gets a verdict by one rule: reproduced,
/// differs, open, or not decidable because the paper does not say what is needed. Killed and started again, the same command
/// goes on. The exit code says whether the runs went well, and nothing of the verdicts. docs/guide/reproduce.md has the rule,
/// and how to describe experiments of your own.
#[derive(ClapArgs)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// `list` shows what there is. Else `all`, papers such as S0, or experiments such as S0-fig11.
    #[arg(required = true)]
    what: Vec<String>,
    /// Fewer and shorter runs, as each description says: to see that everything works.
    #[arg(long)]
    quick: bool,
    /// What carries the runs out; both unless said otherwise, if labs can be built here.
    #[arg(long, value_enum)]
    engine: Option<Engines>,
    /// Where records, pictures and the report go.
    #[arg(long, value_name = "DIR", default_value = "reproduction")]
    out: PathBuf,
    /// Simulations at once; as many as there are processors unless said otherwise.
    #[arg(long, value_name = "J", value_parser = whole_number(1_u32, 1000))]
    jobs: Option<u32>,
    /// Runs on the kernel's TCP at once: what an experiment's description says, else 1, with --quick as many as there are
    /// processors. More than one costs accuracy; the records' lateness tells.
    #[arg(long, value_name = "J", value_parser = whole_number(1_u32, 1000))]
    lab_jobs: Option<u32>,
    /// Run nothing: judge the records that are there.
    #[arg(long)]
    judge_only: bool,
    /// Read the descriptions below this folder, instead of the project's own.
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Print the verdicts as JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engines {
    /// Virtual time.
    Simulator,
    /// The kernel's TCP, in labs.
    Kernel,
    /// One after the other.
    Both,
}

impl Args {
    fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }

    fn records(&self) -> PathBuf {
        self.out.join(RECORDS)
    }

    fn jobs(&self, engine: Engine) -> u32 {
        let processors = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        match engine {
            Engine::Kernel if self.quick => self.lab_jobs.unwrap_or_else(processors),
            Engine::Kernel => self.lab_jobs.unwrap_or(1),
            Engine::Simulator => self.jobs.unwrap_or_else(processors),
        }
    }

    /// The engines that are asked for, and whether the kernel has to be there.
    fn engines(&self) -> (Vec<Engine>, bool) {
        match self.engine {
            Some(Engines::Simulator) => (vec![Engine::Simulator], false),
            Some(Engines::Kernel) => (vec![Engine::Kernel], true),
            Some(Engines::Both) => (Engine::ALL.to_vec(), true),
            None => (Engine::ALL.to_vec(), false),
        }
    }
}

/// Does what the command line says. `code_of` tells the exit code of an error.
pub fn run(args: &Args, code_of: fn(&anyhow::Error) -> u8) -> anyhow::Result<()> {
    let files = args.from.clone().map_or(Files::Own, Files::Below);
    let catalogue = Catalogue::read(&files)?;
    if let [what] = &args.what[..]
        && what == "list"
    {
        return list::show(&catalogue, args.effort(), args.json, args.width);
    }
    let selected = catalogue.select(&args.what).unwrap_or_else(|reason| misused(&reason));
    check_directory(&args.out).with_context(|| args.out.display().to_string())?;
    let done = match args.judge_only {
        true => runs::Done::default(),
        false => runs::missing(args, &catalogue, &selected, code_of)?,
    };
    let manifest = Manifest { command: command(args), notes: done.notes };
    let results = read(args, &catalogue, &selected, &done.engines)?;
    let engines: Vec<Engine> = results.iter().map(|(engine, _)| *engine).collect();
    let report = Report::new(&catalogue, &selected, args.effort(), results, manifest);
    report.notes().for_each(|note| out::note(format_args!("ekiden: warning: {note}")));
    save(&args.out, &report)?;
    show(args, &report, &engines)?;
    done.failed.map_or(Ok(()), |failed| Err(failed.into()))
}

/// The results of the engines that ran, and of those that have records from before. All of a paper counts: how sure a verdict has to be
/// follows from all of its claims.
fn read(
    args: &Args,
    catalogue: &Catalogue,
    selected: &Selected,
    ran: &[Engine],
) -> anyhow::Result<Vec<(Engine, Results)>> {
    let papers: Vec<&str> = selected.experiments.iter().map(|at| catalogue.experiments[*at].paper.as_str()).collect();
    let whole = catalogue.select(&papers).unwrap_or_else(|reason| misused(&reason));
    let records = args.records();
    let (asked, _) = args.engines();
    let has_record = |engine: Engine, set: usize| {
        let entries = std::fs::read_dir(catalogue.sets[set].place(&records, engine, args.effort()));
        entries.is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| is_file(&entry.path()))))
    };
    let has_records =
        |engine: &Engine| ran.contains(engine) || selected.sets.iter().any(|set| has_record(*engine, *set));
    let engines = asked.into_iter().filter(has_records);
    let read = |engine| Ok((engine, Results::read(catalogue, &whole.sets, engine, args.effort(), &records)?));
    engines.map(read).collect()
}

/// The command that makes the same again.
fn command(args: &Args) -> String {
    let mut words = vec!["ekiden reproduce".to_owned()];
    words.extend(args.what.iter().cloned());
    words.extend(args.quick.then(|| "--quick".into()));
    words.extend(args.engine.map(|engine| {
        format!("--engine {}", engine.to_possible_value().map_or(String::new(), |value| value.get_name().into()))
    }));
    words.extend(args.from.as_ref().map(|from| format!("--from {}", from.display())));
    words.join(" ")
}

/// Writes report and pictures.
fn save(out: &Path, report: &Report<'_>) -> anyhow::Result<()> {
    let pictures = out.join(PICTURES);
    make_directories(&pictures).with_context(|| pictures.display().to_string())?;
    let save = |file: PathBuf, text: &str| {
        write(&file, text.as_bytes()).map_err(TargetError::from).with_context(|| file.display().to_string())
    };
    for picture in report.pictures() {
        save(pictures.join(format!("{}.svg", picture.name)), &picture.svg)?;
    }
    save(out.join(REPORT).with_extension("html"), &report.to_html())?;
    save(out.join(REPORT).with_extension("md"), &report.to_markdown(PICTURES))
}

fn show(args: &Args, report: &Report<'_>, engines: &[Engine]) -> anyhow::Result<()> {
    let rows = report.rows();
    if args.json {
        return out::line(serde_json::to_string_pretty(&Shown { effort: args.effort(), claims: &rows })?);
    }
    out::line(table(&rows, engines).to_text_within(args.width.columns()))?;
    for line in report.counts() {
        out::line(args.width.wrapped(&line))?;
    }
    out::line(format_args!("report: {}", args.out.join(REPORT).with_extension("html").display()))
}

#[derive(Serialize)]
struct Shown<'a> {
    effort: Effort,
    claims: &'a [ekiden_reproduce::Row<'a>],
}
