//! Carries out the plan against a model of Cinder and of hosts: every change of a server completes, and a volume that
//! its server keeps is never available.

use std::collections::HashSet;

use kilonova_compute_db::volumes::{AttachmentRow, BlockDevice, Phase, Plug, RowId, Source, State};
use kilonova_ids::{AttachmentId, BlockDeviceId, HostName, ImageId, ServerId, VolumeId};
use kilonova_node_api::Bus;

use super::plan::{Guest, Next, Scene};

fn host(name: &str) -> HostName {
    HostName::verbatim(name)
}

fn guest(name: &str) -> Guest {
    Guest {
        host: host(name),
        is_present: true,
        wants: true,
        is_lost: false,
        has: Vec::new(),
        lacks: true,
    }
}

fn device(source: Source, ordinal: i64) -> BlockDevice {
    BlockDevice {
        id: BlockDeviceId::new_v4(),
        server: ServerId::new_v4(),
        ordinal,
        phase: Phase::Attaching,
        volume: (source == Source::Volume).then(VolumeId::new_v4),
        source,
        size_gb: 1,
        volume_type: None,
        zone: None,
        device: format!("vd{}", char::from(b'b' + u8::try_from(ordinal).unwrap_or_default())),
        bus: Bus::Virtio,
        medium: None,
        boot_index: None,
        tag: None,
        is_shared: false,
        delete_on_termination: false,
        error: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        reimage: None,
        operation: None,
    }
}

#[derive(Default)]
struct Model {
    scene: Scene,
    /// Hosts that do not report.
    silent: Vec<&'static str>,
    dropped: usize,
    steps: Vec<String>,
}

impl Model {
    fn row(&mut self, id: RowId) -> &mut AttachmentRow {
        let row = self.scene.attachments.iter_mut().find(|row| row.id == id);
        row.expect("the row exists")
    }

    fn device(&mut self, id: BlockDeviceId) -> &mut BlockDevice {
        let device = self.scene.devices.iter_mut().find(|device| device.id == id);
        device.expect("the device exists")
    }

    /// Carries out the plan until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..100 {
            let Some(next) = self.scene.next(&HashSet::new()) else { return };
            self.steps.push(format!("{next:?}"));
            self.apply(&next);
        }
        panic!("no end: {:#?}", self.steps);
    }

    fn apply(&mut self, next: &Next) {
        match next {
            Next::Make(id) => self.device(*id).volume = Some(VolumeId::new_v4()),
            Next::Reserve(id, _) => {
                let device = self.device(*id).clone();
                let volume = device.volume.expect("a volume is reserved after it is made");
                self.scene.attachments.push(AttachmentRow {
                    id: RowId::new_v4(),
                    server: device.server,
                    device: device.id,
                    volume,
                    attachment: Some(AttachmentId::new_v4()),
                    host: None,
                    state: State::Reserved,
                    plug: Plug::None,
                });
            }
            Next::Join(id, host, row) => {
                let device = self.device(*id).clone();
                self.scene.attachments.retain(|one| Some(one.id) != *row);
                self.scene.attachments.push(AttachmentRow {
                    id: RowId::new_v4(),
                    server: device.server,
                    device: device.id,
                    volume: device.volume.expect("it is attached"),
                    attachment: Some(AttachmentId::new_v4()),
                    host: Some(host.clone()),
                    state: State::Connected,
                    plug: Plug::None,
                });
            }
            Next::Find(id) => self.scene.attachments.retain(|row| row.id != *id),
            Next::Connect(id, host) => {
                let device = self.row(*id).device;
                let others = self.scene.attachments.iter();
                let is_connected = |row: &AttachmentRow| row.id != *id && row.host.is_some();
                assert!(
                    !others.filter(|row| row.device == device).any(is_connected),
                    "Cinder refuses a second connection: {:#?}",
                    self.steps
                );
                let row = self.row(*id);
                (row.host, row.state, row.plug) =
                    (Some(host.clone()), State::Connected, Plug::None);
            }
            Next::Deliver(host) => self.deliver(host),
            Next::Reimage(id) => {
                let mut rows = self.scene.attachments.iter().filter(|row| row.device == *id);
                let row = rows.next().expect("the volume is reserved");
                assert!(row.host.is_none() && rows.next().is_none(), "{:#?}", self.steps);
                (self.device(*id).phase, self.device(*id).reimage) = (Phase::Attached, None);
            }
            Next::Complete(id) => {
                self.row(*id).state = State::Complete;
                let device = self.row(*id).device;
                self.device(device).phase = Phase::Attached;
            }
            Next::End(id) => {
                let row = self.row(*id).clone();
                self.scene.attachments.retain(|row| row.id != *id);
                let keeps = !self.scene.is_gone
                    && matches!(
                        self.device(row.device).phase,
                        Phase::Attaching | Phase::Attached | Phase::Reimaging
                    );
                let has_other = self.scene.attachments.iter().any(|one| one.device == row.device);
                assert!(!keeps || has_other, "the volume is available: {:#?}", self.steps);
            }
            Next::RollDetaching(id) => self.device(*id).phase = Phase::Attached,
            Next::DeleteVolume(id) => {
                self.dropped += 1;
                self.device(*id).volume = None;
                let id = *id;
                self.scene.devices.retain(|device| device.id != id);
            }
            Next::Forget(id) => self.scene.devices.retain(|device| device.id != *id),
        }
    }

    fn deliver(&mut self, host: &HostName) {
        let list: Vec<_> = self
            .scene
            .deliverable(host)
            .into_iter()
            .filter_map(|(device, row)| Some((row.attachment?, device.size_gb)))
            .collect();
        let reports = !self.silent.contains(&host.as_str());
        let guest = self.scene.guests.iter_mut().find(|guest| guest.host == *host);
        let guest = guest.expect("the guest exists");
        (guest.has, guest.lacks) = (list.clone(), false);
        for row in self.scene.attachments.iter_mut().filter(|row| row.host.as_ref() == Some(host)) {
            let is_there = list.iter().any(|(id, _)| row.attachment == Some(*id));
            row.plug = match (is_there, reports) {
                (true, true) => Plug::Plugged,
                (true, false) => Plug::Given,
                (false, true) if row.plug != Plug::None => Plug::Unplugged,
                (false, _) => row.plug,
            };
        }
    }

    fn hosts(&self) -> Vec<String> {
        let host = |row: &AttachmentRow| {
            row.host.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
        };
        let mut hosts: Vec<String> = self.scene.attachments.iter().map(host).collect();
        hosts.sort();
        hosts
    }

    fn booted(sources: &[Source]) -> Self {
        let devices = sources.iter().zip(0..).map(|(source, at)| device(*source, at)).collect();
        let scene =
            Scene { host: Some(host("a")), guests: vec![guest("a")], devices, ..Scene::default() };
        let mut model = Self { scene, ..Self::default() };
        model.settle();
        model
    }
}

#[test]
fn a_boot_makes_reserves_connects_and_completes() {
    let model = Model::booted(&[Source::Volume, Source::Blank]);
    assert_eq!(model.hosts(), ["a", "a"]);
    assert!(model.scene.devices.iter().all(|device| device.phase == Phase::Attached));
    assert!(model.scene.attachments.iter().all(|row| row.state == State::Complete));
    assert!(!model.scene.guests[0].lacks && model.scene.guests[0].has.len() == 2);
}

#[test]
fn a_detached_volume_ends_after_the_host_has_let_it_go() {
    let mut model = Model::booted(&[Source::Volume, Source::Volume]);
    model.scene.devices[0].phase = Phase::Detaching;
    model.silent = vec!["a"];
    model.settle();
    assert_eq!(model.hosts(), ["a", "a"], "the host has not reported");
    model.scene.guests[0].is_lost = true;
    model.settle();
    assert_eq!(model.hosts(), ["a", "a"], "a host that is down may write to it");
    model.scene.guests[0].is_lost = false;
    model.silent.clear();
    model.deliver(&host("a"));
    model.settle();
    assert_eq!((model.hosts().len(), model.scene.devices.len()), (1, 1));
    model.scene.devices[0].phase = Phase::BeginDetaching;
    model.settle();
    assert_eq!(model.scene.devices[0].phase, Phase::Attached, "the detachment is undone");
}

#[test]
fn the_data_of_a_volume_are_replaced_while_no_host_has_it() {
    let mut model = Model::booted(&[Source::Volume, Source::Volume]);
    let (old, kept) =
        (model.scene.attachments[0].attachment, model.scene.attachments[1].attachment);
    let root = &mut model.scene.devices[0];
    (root.phase, root.reimage) = (Phase::Reimaging, Some(ImageId::new_v4()));
    model.silent = vec!["a"];
    model.settle();
    assert_eq!(model.hosts(), ["a", "a"], "the host has not released it");
    assert_eq!(model.scene.guests[0].has.len(), 1, "the document lacks it");
    model.scene.guests[0].is_lost = true;
    model.settle();
    assert_eq!(model.hosts(), ["a", "a"], "a host that is down may write to it");
    model.scene.guests[0].is_lost = false;
    model.silent.clear();
    model.deliver(&host("a"));
    model.settle();
    assert!(model.steps.iter().any(|step| step.starts_with("Reimage")), "{:#?}", model.steps);
    assert_eq!((model.hosts(), model.scene.guests[0].has.len()), (vec!["a".into(); 2], 2));
    assert!(model.scene.attachments.iter().all(|row| row.attachment != old));
    assert!(model.scene.attachments.iter().any(|row| row.attachment == kept));
    assert!(model.scene.attachments.iter().all(|row| row.state == State::Complete));
    // The server is deleted meanwhile.
    let root = &mut model.scene.devices[0];
    (root.phase, root.reimage) = (Phase::Reimaging, Some(ImageId::new_v4()));
    model.scene.is_gone = true;
    model.settle();
    assert!(model.scene.devices.is_empty() && model.scene.attachments.is_empty());
}

#[test]
fn a_cold_move_connects_the_destination_after_the_source() {
    let mut model = Model::booted(&[Source::Volume]);
    model.silent = vec!["a"];
    model.scene.guests[0].wants = false;
    model.scene.guests.push(guest("b"));
    model.settle();
    assert_eq!(model.hosts(), ["a"], "the source has not disconnected");
    model.silent.clear();
    model.deliver(&host("a"));
    model.settle();
    assert_eq!(model.hosts(), ["b"]);
    assert!(!model.scene.guests[1].lacks);
    model.scene.host = Some(host("b"));
    model.settle();
    assert_eq!(model.scene.attachments[0].state, State::Complete);
    // The server moves back.
    model.scene.host = Some(host("a"));
    model.scene.guests = vec![guest("a")];
    model.settle();
    assert_eq!(model.hosts(), ["a"]);
}

#[test]
fn a_live_migration_has_both_hosts_connected() {
    let mut model = Model::booted(&[Source::Volume]);
    model.scene.guests.push(guest("b"));
    model.settle();
    assert_eq!(model.hosts(), ["a", "b"]);
    assert_eq!(
        model.scene.attachments.iter().filter(|row| row.state == State::Complete).count(),
        1
    );
    model.scene.host = Some(host("b"));
    model.scene.guests.remove(0);
    model.settle();
    assert_eq!(model.hosts(), ["b"]);
    assert_eq!(model.scene.attachments[0].state, State::Complete);
    // A migration that fails.
    model.scene.guests.push(guest("c"));
    model.settle();
    model.scene.guests.pop();
    model.settle();
    assert_eq!(model.hosts(), ["b"]);
    // A migration that ends after a call without an answer.
    model.scene.guests.push(guest("c"));
    let row = model.scene.attachments[0].clone();
    let lost = AttachmentRow {
        id: RowId::new_v4(),
        attachment: None,
        host: Some(host("c")),
        state: State::Reserving,
        ..row
    };
    model.scene.attachments.push(lost.clone());
    let device = model.scene.devices[0].id;
    assert_eq!(
        model.scene.next(&HashSet::new()),
        Some(Next::Join(device, host("c"), Some(lost.id)))
    );
    model.scene.guests.pop();
    assert_eq!(model.scene.next(&HashSet::new()), Some(Next::Find(lost.id)));
    model.settle();
    assert_eq!(model.hosts(), ["b"]);
}

#[test]
fn a_live_migration_keeps_both_hosts_while_one_is_silent() {
    for (silent, at) in [("a", 0), ("b", 1)] {
        let mut model = Model::booted(&[Source::Volume]);
        model.scene.guests.push(guest("b"));
        model.settle();
        model.silent = vec![silent];
        model.scene.guests[at].is_lost = true;
        let before = model.scene.attachments.clone();
        model.settle();
        assert_eq!(model.scene.attachments, before, "host {silent} may have the guest");
        // The same holds for a destination that was never connected.
        let mut model = Model::booted(&[Source::Volume]);
        model.scene.guests.push(guest("b"));
        model.silent = vec![silent];
        model.scene.guests[at].is_lost = true;
        model.settle();
        assert_eq!(model.hosts(), ["a", "b"]);
    }
}

#[test]
fn an_evacuation_leaves_the_dead_host() {
    let mut model = Model::booted(&[Source::Volume]);
    model.scene.guests[0].is_lost = true;
    model.settle();
    assert_eq!(model.hosts(), ["a"], "no other host has it");
    model.scene.guests[0].wants = false;
    model.silent = vec!["a"];
    model.scene.guests.push(guest("b"));
    model.settle();
    assert_eq!(model.hosts(), ["b"]);
}

#[test]
fn an_evacuation_ends_a_detachment_and_a_failed_attachment() {
    for phase in [Phase::Detaching, Phase::Failed] {
        let mut model = Model::booted(&[Source::Volume, Source::Volume]);
        model.scene.devices[0].phase = phase;
        model.scene.guests[0].is_lost = true;
        model.silent = vec!["a"];
        model.settle();
        assert_eq!(model.hosts(), ["a", "a"], "{phase:?}: the guest may write to it");
        // The evacuation begins: no other host has the guest.
        (model.scene.guests[0].wants, model.scene.guests[0].is_present) = (false, false);
        model.settle();
        assert_eq!(model.hosts(), ["-", "a"], "{phase:?}: only the other volume is moved");
        model.scene.guests.push(guest("b"));
        model.settle();
        assert_eq!((model.hosts(), model.scene.devices.len()), (vec!["b".into()], 1), "{phase:?}");
        assert_eq!(model.scene.guests[1].has.len(), 1, "{phase:?}");
    }
}

#[test]
fn a_device_that_fails_does_not_block_the_others() {
    let mut model = Model::booted(&[Source::Volume, Source::Volume]);
    (model.scene.is_gone, model.scene.host) = (true, None);
    model.scene.guests.clear();
    let [first, second] = [0, 1].map(|at| model.scene.devices[at].id);
    let next = model.scene.next(&HashSet::new()).expect("both have a step");
    assert_eq!(model.scene.device_of(&next), Some(first));
    let next = model.scene.next(&HashSet::from([first])).expect("the other one has a step");
    assert_eq!(model.scene.device_of(&next), Some(second));
    assert_eq!(model.scene.next(&HashSet::from([first, second])), None);
}

#[test]
fn a_shelved_server_keeps_its_volume_reserved() {
    let mut model = Model::booted(&[Source::Volume]);
    (model.scene.host, model.scene.is_offloaded) = (None, true);
    model.scene.guests.clear();
    model.settle();
    assert_eq!(
        (model.hosts(), model.scene.attachments[0].state),
        (vec!["-".into()], State::Reserved)
    );
    model.scene.devices.push(device(Source::Volume, 1));
    model.settle();
    assert_eq!(model.scene.attachments[1].state, State::Complete, "Cinder shows it in use");
    (model.scene.host, model.scene.is_offloaded) = (Some(host("b")), false);
    model.scene.guests.push(guest("b"));
    model.settle();
    assert_eq!(model.hosts(), ["b", "b"]);
}

#[test]
fn nothing_is_left_of_a_server_that_is_gone() {
    let mut model = Model::booted(&[Source::Volume, Source::Blank, Source::Blank]);
    model.scene.devices[1].delete_on_termination = true;
    model.scene.guests.clear();
    (model.scene.is_gone, model.scene.host) = (true, None);
    model.settle();
    assert!(model.scene.devices.is_empty() && model.scene.attachments.is_empty());
    assert_eq!(model.dropped, 1);
    let mut model = Model::booted(&[Source::Volume, Source::Blank]);
    for device in &mut model.scene.devices {
        (device.phase, device.delete_on_termination) = (Phase::Failed, true);
    }
    model.settle();
    assert!(model.scene.devices.is_empty() && model.scene.attachments.is_empty());
    assert_eq!(model.dropped, 1, "a volume of the user stays");
}
