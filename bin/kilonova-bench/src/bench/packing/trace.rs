//! Reads hosts, requests and published results from files in the form of Alibaba's openb trace.

use std::collections::HashMap;
use std::path::Path;

use kilonova_packing::{Host, Model, Models, Shape, WHOLE};
use kilonova_program::Failure;

/// The hosts of a trace, and the names of the models.
pub struct Trace {
    hosts: Vec<Host>,
    models: HashMap<String, Model>,
}

impl Trace {
    /// Reads the hosts.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let mut trace = Self { hosts: Vec::new(), models: HashMap::new() };
        for line in Lines::read(file)? {
            let count: usize = line.number("gpu")?;
            let model = trace.model(line.text("model")?)?;
            let free = vec![WHOLE; count];
            let host =
                Host::new(line.number("cpu_milli")?, line.number("memory_mib")?, model, free);
            trace.hosts.push(host);
        }
        Ok(trace)
    }

    fn model(&mut self, name: &str) -> Result<Model, Failure> {
        let next = self.models.len();
        if let Some(model) = self.models.get(name) {
            return Ok(*model);
        }
        let next = u8::try_from(next).ok().filter(|next| *next < Models::MAX);
        let next = next.ok_or_else(|| {
            Failure::Refused(format!("the trace has more than {} models", Models::MAX))
        })?;
        self.models.insert(name.to_owned(), Model(next));
        Ok(Model(next))
    }

    /// All hosts, idle.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The number of devices of each model.
    pub fn supply<'a>(&self, hosts: impl IntoIterator<Item = &'a Host>) -> Vec<(Model, u32)> {
        let mut supply: HashMap<Model, u32> = HashMap::new();
        for host in hosts {
            *supply.entry(host.model).or_default() += host.devices();
        }
        supply.into_iter().collect()
    }

    /// Reads requests, in the order of their names.
    pub fn requests(&mut self, file: &Path) -> Result<Vec<Shape>, Failure> {
        let mut requests = Vec::new();
        for line in Lines::read(file)? {
            let count: u8 = line.number("num_gpu")?;
            let share = if count == 0 { 0 } else { line.number("gpu_milli")? };
            let mut models = Vec::new();
            for name in line.optional("gpu_spec").split('|').filter(|name| !name.is_empty()) {
                models.push(self.model(name)?);
            }
            let shape = Shape {
                cpu: line.number("cpu_milli")?,
                memory: line.number("memory_mib")?,
                count,
                share,
                models: Models::of(models),
            };
            requests.push((line.text("name")?.to_owned(), shape));
        }
        requests.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(requests.into_iter().map(|(_, shape)| shape).collect())
    }
}

/// Published means at 130 %, by workload and policy.
#[derive(Default)]
pub struct Published(HashMap<(String, String), f64>);

impl Published {
    /// Reads the results.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let mut known = HashMap::new();
        for line in Lines::read(file)? {
            let key = (line.text("workload")?.to_owned(), line.text("policy")?.to_owned());
            known.insert(key, line.number("alloc_pct_at_130")?);
        }
        Ok(Self(known))
    }

    /// The mean of a policy.
    pub fn figure(&self, workload: &str, policy: &str) -> Option<f64> {
        self.0.get(&(workload.to_owned(), policy.to_owned())).copied()
    }

    /// By how much Kilonova aims to exceed FGD, in percent of the devices. Where shares or whole hosts
    /// dominate, little is left to gain.
    pub fn margin(&self, workload: &str) -> f64 {
        if workload.starts_with("gpushare") || workload == "multigpu50" { 0.1 } else { 0.3 }
    }
}

/// The lines of a file with a header line.
struct Lines {
    file: String,
    names: Vec<String>,
    lines: std::vec::IntoIter<(usize, String)>,
}

impl Lines {
    fn read(file: &Path) -> Result<Self, Failure> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::Refused(format!("cannot read {name}: {error}")))?;
        let mut lines =
            text.lines().map(str::to_owned).enumerate().filter(|(_, line)| !line.is_empty());
        let (_, header) =
            lines.next().ok_or_else(|| Failure::Refused(format!("{name} is empty")))?;
        let names = header.split(',').map(|name| name.trim().to_owned()).collect();
        Ok(Self { file: name, names, lines: lines.collect::<Vec<_>>().into_iter() })
    }
}

impl Iterator for Lines {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let (at, text) = self.lines.next()?;
        let values =
            self.names.iter().cloned().zip(text.split(',').map(|value| value.trim().to_owned()));
        Some(Line { place: format!("{}:{}", self.file, at + 1), values: values.collect() })
    }
}

/// One line, by column.
struct Line {
    place: String,
    values: HashMap<String, String>,
}

impl Line {
    fn text(&self, name: &str) -> Result<&str, Failure> {
        let value = self.values.get(name).map(String::as_str);
        value.ok_or_else(|| Failure::Refused(format!("{} has no column {name}", self.place)))
    }

    fn optional(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, Failure> {
        let text = self.text(name)?;
        text.parse().map_err(|_| {
            Failure::Refused(format!("{}: {name} is not a number in range: {text:?}", self.place))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Published, Trace};

    /// Files that are deleted at the end of the test.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a temporary directory is created"))
        }

        fn file(&self, name: &str, text: &str) -> std::path::PathBuf {
            let file = self.0.path().join(name);
            std::fs::write(&file, text).expect("the file is written");
            file
        }
    }

    #[test]
    fn a_trace_is_read_by_column_name() {
        let folder = Folder::new();
        let hosts = folder.file(
            "hosts.csv",
            "model,sn,cpu_milli,memory_mib,gpu\nT4,a,64000,1024,2\nG2,b,1,2,8\n",
        );
        let mut trace = Trace::read(&hosts).expect("the hosts are read");
        assert_eq!(trace.hosts()[0].free(), [1000, 1000]);
        let mut supply = trace.supply(trace.hosts());
        supply.sort_unstable();
        assert_eq!(supply.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2, 8]);
        let text =
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\nb,1,2,1,460,T4|G2\na,3,4,0,7,\n";
        let requests =
            trace.requests(&folder.file("requests.csv", text)).expect("the requests are read");
        assert_eq!(
            (requests[0].cpu, requests[0].share),
            (3, 0),
            "the requests are sorted by name, and one without devices has no share"
        );
        assert_eq!((requests[1].share, requests[1].models.count()), (460, 2));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let folder = Folder::new();
        let hosts =
            folder.file("wrong.csv", "sn,cpu_milli,memory_mib,gpu,model\na,64000,1024,many,T4\n");
        let error = Trace::read(&hosts).err().expect("the number is refused").to_string();
        assert!(error.ends_with("wrong.csv:2: gpu is not a number in range: \"many\""), "{error}");
        let short = folder.file("short.csv", "sn,cpu_milli\na,1\n");
        let error = Trace::read(&short).err().expect("the file is refused").to_string();
        assert!(error.contains("has no column gpu"), "{error}");
    }

    #[test]
    fn published_figures_are_found() {
        let folder = Folder::new();
        let text =
            "workload,policy,seeds,alloc_pct_at_100,alloc_pct_at_130\ndefault,FGD,10,95.23,95.39\n";
        let published =
            Published::read(&folder.file("published.csv", text)).expect("the file is read");
        assert_eq!(published.figure("default", "FGD"), Some(95.39));
        assert_eq!(published.figure("default", "BestFit"), None);
    }
}
