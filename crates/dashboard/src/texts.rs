//! Every sentence and word that pages show, in one place, so that they can be translated.
//!
//! Messages of the services are shown as the services write them.

use kilonova_compute_app::drain::Step;

use crate::api::{Colour, Group, Show, Size};
use crate::app::floor::Use;

macro_rules! texts {
    ($($name:ident = $text:expr;)*) => {$(pub(crate) const $name: &str = $text;)*};
}

texts! {
    // Every page.
    NAME = "Kilonova";
    SKIP = "Skip to the content";
    NAVIGATION = "Pages";
    SERVERS = "Servers";
    LAUNCH = "Launch";
    PROJECT = "Project";
    SWITCH_PROJECT = "Switch project";
    LOG_OUT = "Log out";
    BACK = "Back";
    CANCEL = "Cancel";
    SESSION_ENDS = "Your session ends soon. Log in again to continue; anything that you have typed will be lost.";
    SESSION_ENDED = "Your session has ended.";
    LOG_IN_AGAIN = "Log in again";
    LIVE_LOST = "The connection to the server is interrupted. The page may be out of date; it reconnects automatically.";
    // Login.
    LOGIN = "Log in";
    USER = "User name";
    PASSWORD = "Password";
    PROJECT_OPTIONAL = "Project";
    PROJECT_HINT = "Leave it empty for your default project.";
    DOMAIN = "Domain";
    MORE = "Project and domain";
    WITH_CREDENTIAL = "Application credential";
    WITH_PASSWORD = "Password";
    CREDENTIAL_ID = "Credential ID";
    CREDENTIAL_SECRET = "Secret";
    WRONG_LOGIN = "The user name, the password or the project is wrong.";
    WRONG_CREDENTIAL = "The ID or the secret of the application credential is wrong, or it has expired.";
    LOGIN_BUSY = "Too many people are logging in. Try again in a few seconds.";
    LOGIN_STALE = "This form has expired. Try again.";
    LOGIN_HINT = "The administrator's first password is in the file openrc of the state directory.";
    SESSION_TOO_LARGE = "The token of this project is too large for a cookie. Use another project, or the command line.";
    NO_PROJECT = "You have no role in any project. Ask an administrator for one.";
    ONLY_ABOVE_PROJECTS = "Your roles are on the system or the domain, but the dashboard works in a project. An administrator can give you a role in one: openstack role add --user NAME --project PROJECT ROLE.";
    WRONG_PROJECT = "You have no role in this project.";
    CHOOSE_PROJECT = "Choose a project";
    USE_PROJECT = "Use";
    CURRENT_PROJECT = "in use";
    LOGGED_OUT = "You are logged out.";
    LOGGED_OUT_ONLY_HERE = "You are logged out of this browser, but the service could not revoke the token. It stays valid until it expires.";
    // Errors.
    NOT_FOUND = "Not found";
    NOT_FOUND_TEXT = "There is nothing at this address, or your project has no access to it.";
    FORBIDDEN = "Not allowed";
    FORGED_TEXT = "This form does not belong to your session. Go back, reload the page and try again.";
    ROLES_CHANGED = "Your roles have changed. Reload the page.";
    REFUSED = "Refused";
    ADDRESS_TOO_LONG = "The address is too long.";
    UNAVAILABLE = "Temporarily unavailable";
    UNAVAILABLE_TEXT = "The service cannot answer now. Try again in a moment.";
    CROWDED_TEXT = "Too many pages are open. Close some, or try again in a moment.";
    BROKEN = "Service error";
    BROKEN_TEXT = "The operator can find the cause in the log by the request ID.";
    UNREADABLE = "The form cannot be read";
    REQUEST_ID = "Request";
    // The list of servers.
    NO_SERVERS = "This project has no servers yet.";
    NO_MATCHES = "No server matches these filters.";
    LAUNCH_FIRST = "Launch one";
    SERVER_NAME = "Name";
    STATUS = "Status";
    ADDRESSES = "Addresses";
    FLAVOR = "Flavor";
    IMAGE = "Image";
    HOST = "Host";
    CREATED = "Created";
    FILTER_NAME = "Name contains";
    FILTER_STATUS = "Status";
    FILTER_IP = "Address contains";
    ANY_STATUS = "any";
    ALL_PROJECTS = "All projects";
    FILTER = "Filter";
    CLEAR_FILTERS = "Clear";
    NEXT_PAGE = "Older servers";
    FIRST_PAGE = "Newest servers";
    VOLUME = "a volume";
    PICK = "Choose";
    BULK = "With the chosen servers:";
    BULK_TOO_MANY = "It names too many servers.";
    EACH_SERVER = "For each server:";
    BULK_UNABLE = "These servers are left out, because their state or your role does not allow the action:";
    SERVER_GONE = "The server no longer exists.";
    RESULT = "Result";
    REQUESTED = "requested";
    FIELD_MISSING = "A field is missing.";
    // A server.
    OVERVIEW = "Overview";
    FAULT = "Why it failed";
    FAULT_AT = "Since";
    NEXT_STEPS = "Next steps";
    DEVICES = "Devices";
    NO_DEVICES = "No devices.";
    DEVICE_CLASS = "Kind";
    DEVICE_STATE = "State";
    DEVICE_HANDLE = "Handle";
    DEVICE_ASKED = "Requested by";
    DEVICE_HEALTH = "Health";
    PORTS = "Ports";
    NO_PORTS = "No ports.";
    MAC = "MAC address";
    NETWORK = "Network";
    PORT_STATE = "State";
    TIMELINE = "Timeline";
    NO_TIMELINE = "Nothing has happened yet.";
    FAILED = "failed";
    IN_PROGRESS = "in progress";
    CANCELLED = "cancelled";
    ACTIONS = "Actions";
    ACTIONS_GUEST = "Guest";
    ACTIONS_STATE = "State";
    ACTIONS_IMAGE = "Images and flavor";
    ACTIONS_DETAILS = "Ports, volumes, details";
    ACTIONS_ADMIN = "Administration";
    ACTIONS_REMOVAL = "Removal";
    ACTIONS_DO = "About these actions";
    NO_ACTIONS = "Your role allows no action in this state.";
    CONSOLE_LOG = "Console log";
    CONSOLE_LOG_EMPTY = "The guest has written nothing to its serial port.";
    CONSOLE_LOG_LINES = "The last 200 lines";
    CONSOLE = "Console";
    OPEN_CONSOLE = "Open the console";
    CONSOLE_HINT = "The console is in a frame; click its screen before you type.";
    ID = "ID";
    LOCKED = "locked";
    POWER = "Power";
    ZONE = "Availability zone";
    KEY = "Key";
    DESCRIPTION = "Description";
    PROFILE = "Device profile";
    SECURITY_GROUPS = "Security groups";
    // Actions.
    START = "Start";
    STOP = "Shut off";
    STOP_LOSES = "The guest is shut off. Its disk, devices and addresses are kept; the contents of its memory are lost.";
    REBOOT = "Reboot";
    REBOOT_LOSES = "The guest's operating system is asked to restart. Programs in it are interrupted.";
    HARD_REBOOT = "Hard reboot";
    HARD_REBOOT_LOSES = "The guest is destroyed and started again, as if its power failed. Unwritten data is lost.";
    PAUSE = "Pause";
    UNPAUSE = "Unpause";
    SUSPEND = "Suspend";
    RESUME = "Resume";
    SNAPSHOT = "Create image";
    RESIZE = "Resize";
    CONFIRM_RESIZE = "Confirm resize";
    CONFIRM_RESIZE_LOSES = "The server stays as it is now, and the resources of its earlier size are released. The resize cannot be reverted afterwards.";
    REVERT_RESIZE = "Revert resize";
    REVERT_RESIZE_LOSES = "The server returns to its earlier size and host. Everything that was written to its disk since the resize is lost.";
    RESCUE = "Rescue";
    RESCUE_LOSES = "The guest is shut off and boots from a rescue image, with its own disk attached.";
    UNRESCUE = "Unrescue";
    SHELVE = "Shelve";
    SHELVE_LOSES = "The guest is shut off and its disk becomes an image. Later its devices are released for others, and the server needs free devices to start again.";
    UNSHELVE = "Unshelve";
    OFFLOAD = "Offload";
    LOCK = "Lock";
    UNLOCK = "Unlock";
    RESTORE = "Restore";
    LIVE_MIGRATE = "Live migrate";
    MIGRATE = "Migrate";
    MIGRATE_LOSES = "The guest is shut off while the server moves to another host.";
    ABORT_MIGRATION = "Abort the live migration";
    ABORT_MIGRATION_LOSES = "The guest stays on its host. The copy of its memory is discarded.";
    COMPLETE_MIGRATION = "Complete the live migration";
    COMPLETE_MIGRATION_LOSES = "The guest is paused until the rest of its memory is copied.";
    NO_MIGRATION = "The server has no live migration in progress.";
    RESET_STATE = "Reset the state";
    RESET_STATE_LOSES = "A server in ERROR becomes active, and any other server goes to ERROR; an operation in progress is abandoned. The guest is not touched.";
    EVACUATE = "Evacuate";
    EVACUATE_LOSES = "The server is rebuilt on another host. Do this only if its host is down permanently: unless its disk is shared, the contents of the disk are lost.";
    REBUILD = "Rebuild";
    REBUILD_LOSES = "The server's disk is created anew from its image. Everything on the disk is lost; devices and addresses are kept.";
    DELETE = "Delete";
    DELETE_LOSES = "The server and its disk are deleted, and its devices are released.";
    FORCE_DELETE = "Delete permanently";
    IMAGE_NAME = "Name of the image";
    BACKUP = "Create backup";
    BACKUP_LOSES = "Only the newest backups of this kind are kept. Older ones are deleted.";
    BACKUP_KIND = "Kind";
    BACKUP_KIND_HINT = "Each kind is counted separately.";
    BACKUP_KEEP = "Backups to keep";
    DAILY = "daily";
    WEEKLY = "weekly";
    ATTACH_PORT = "Attach port";
    NETWORK_OR_PORT = "Network or port";
    DETACH_PORT = "Detach port";
    DETACH_PORT_LOSES = "The guest loses this network interface with its addresses. A port that was created for the server is deleted.";
    PORT = "Port";
    ATTACH_VOLUME = "Attach volume";
    VOLUME_ID = "Volume ID";
    VOLUME_ID_HINT = "The ID of an available volume of this project, as shown by openstack volume list.";
    DETACH_VOLUME = "Detach volume";
    DETACH_VOLUME_LOSES = "The guest loses this disk. Unmount it in the guest first: unwritten data is lost.";
    ATTACHED_VOLUME = "Attached volume";
    VOLUMES = "Volumes";
    VOLUME_DEVICE = "Device";
    VOLUME_FATE = "When the server is deleted";
    VOLUME_STAYS = "it stays";
    VOLUME_GOES = "it is deleted too";
    RENAME = "Rename";
    CHANGE_METADATA = "Edit metadata";
    METADATA = "Metadata";
    METADATA_HINT = "One key=value per line. In a value, \\n is a line break and \\\\ a backslash. A key that is missing here is removed.";
    METADATA_LINE = "Each line must have the form key=value.";
    METADATA_TWICE = "A key appears twice.";
    CHANGE_TAGS = "Edit tags";
    TAGS_HINT = "Separate them with commas.";
    CHANGED_MEANWHILE = "The value has changed since this form was opened. Compare what you have typed with the current value, and send it again.";
    PRESENT = "Current value:";
    NO_CHOICE = "There is nothing to choose.";
    NEW_FLAVOR = "New flavor";
    // Launch.
    LAUNCH_TITLE = "Launch servers";
    LAUNCH_NAME = "Name";
    LAUNCH_COUNT = "Count";
    LAUNCH_KEY = "Key pair";
    LAUNCH_NO_KEY = "no key";
    LAUNCH_NETWORK = "Network";
    LAUNCH_NO_NETWORK = "no network";
    LAUNCH_GROUPS = "Security groups";
    LAUNCH_SERVER_GROUP = "Server group";
    LAUNCH_NO_SERVER_GROUP = "no group";
    LAUNCH_USER_DATA = "User data";
    LAUNCH_USER_DATA_HINT = "A cloud-init file or a script, which the guest receives at its first boot.";
    LAUNCH_BUTTON = "Launch";
    LAUNCH_CHECK = "Check whether it fits";
    LAUNCH_NO_FLAVORS = "There are no flavors. An administrator must create one.";
    LAUNCH_MORE_IMAGES = "There are more images. To launch from one that is not in this list, choose it on the Images page.";
    LAUNCH_NO_IMAGES = "There are no images. Upload one first.";
    LAUNCH_MISSING = "Choose a flavor and an image, and type a name.";
    LAUNCH_TOO_MUCH = "The user data is too large; the limit is 48 KiB.";
    ROOM_UNKNOWN = "Capacity could not be counted now. The request may still fit.";
    ROOM_INSTEAD = "Flavors of this kind that fit now:";
    ROOM_NONE = "It does not fit now.";
    ROOM_SHORT = "Not that many fit now.";
    // Keys, images, networks, security groups, quotas and device profiles.
    CREATE = "Create";
    REMOVE = "Remove";
    NAME_OF = "Name";
    TYPE = "Type";
    KIND = "Kind";
    RESOURCE = "Resource";
    YES = "yes";
    NO = "no";
    ANY = "any";
    FIRST = "First page";
    NEXT = "Next page";
    PAGES = "Pages of the list";
    NAME_MISSING = "Type a name.";
    NUMBER_WRONG = "A size must be a number without a unit.";
    KEYS = "Keys";
    KEYS_TEXT = "Your key pairs are the same in every project. A server receives the public key when it is launched.";
    NO_KEYS = "You have no key pairs yet.";
    NEW_KEY = "New key pair";
    FINGERPRINT = "Fingerprint";
    PUBLIC_KEY = "Public key";
    PUBLIC_KEY_HINT = "Leave it empty to generate a key pair.";
    KEY_SSH = "SSH";
    KEY_X509 = "X.509 certificate";
    PRIVATE_KEY = "Private key";
    PRIVATE_KEY_ONCE = "Save it now. It is shown only once, and the service does not store it.";
    DOWNLOAD = "Download";
    KEY_LOSES = "New servers can no longer use the key pair. Servers that have the key keep it.";
    IMAGES = "Images";
    NO_IMAGES = "There are no images.";
    NEW_IMAGE = "New image";
    NEW_IMAGE_TEXT = "The image is created first; its page then accepts the file.";
    VISIBILITY = "Visibility";
    FORMAT = "Format";
    MIN_DISK = "Minimum disk";
    MIN_RAM = "Minimum memory";
    PROTECTED = "Protected";
    TAGS = "Tags";
    UPLOAD = "Upload";
    UPLOAD_TEXT = "The image has no data yet. Keep the page open until the upload has ended.";
    UPLOAD_LOST = "The upload was interrupted, and none of it is kept. Reload the page and try again.";
    FILE = "File";
    FILE_MISSING = "Choose a file.";
    SUM = "Expected checksum";
    SUM_HINT = "SHA-256 or SHA-512 in hexadecimal digits, if you have it. A file with a different checksum is refused.";
    SUM_WRONG = "The checksum is neither SHA-256 (64 hexadecimal digits) nor SHA-512 (128).";
    SUM_DIFFERS = "The file does not have this checksum. None of it is kept.";
    IMAGE_LOSES = "The image and its data are deleted. Servers that were launched from it stay.";
    NETWORKS = "Networks";
    NO_NETWORKS = "There are no networks.";
    NEW_NETWORK = "New network";
    NEW_NETWORK_TEXT = "Servers need a subnet on it for their addresses: add one on the page of the network.";
    SHARED = "shared";
    SHARED_HINT = "Share it with all projects";
    EXTERNAL = "external";
    OWN = "own";
    MTU = "MTU";
    PROVIDER = "Provider network";
    SUBNETS = "Subnets";
    NO_SUBNETS = "No subnets. Ports on this network have no addresses.";
    ADD_SUBNET = "Add a subnet";
    CIDR = "CIDR";
    CIDR_MISSING = "Type the CIDR of the subnet, as in 192.0.2.0/24.";
    GATEWAY = "Gateway";
    GATEWAY_HINT = "Leave it empty for the first address; type none for no gateway.";
    DNS = "Name servers";
    DHCP = "DHCP";
    ADD_PORT = "Add a port";
    DEVICE = "Used by";
    SERVER = "server";
    NETWORK_LOSES = "The network and its subnets are deleted.";
    SUBNET_LOSES = "The subnet and its addresses are deleted.";
    PORT_LOSES = "The port and its addresses are deleted.";
    GROUPS_TEXT = "A security group defines which traffic may reach and leave its ports. Everything else is dropped.";
    NO_GROUPS = "There are no security groups.";
    NEW_GROUP = "New security group";
    RULES = "Rules";
    NO_RULES = "No rules: the group admits nothing.";
    ADD_RULE = "Add a rule";
    DIRECTION = "Direction";
    ETHERTYPE = "Ethertype";
    PROTOCOL = "Protocol";
    PORT_RANGE = "Ports";
    PORTS_HINT = "One, or a range as in 8000-8100; empty for all. For ICMP: type, or type-code.";
    PORTS_WRONG = "Ports are one number, or two numbers separated by a hyphen, up to 65535.";
    REMOTE = "Remote";
    REMOTE_HINT = "A prefix, or self for the members of this group; empty for any address.";
    THIS_GROUP = "this group";
    GROUP_LOSES = "The group and its rules are deleted.";
    QUOTAS = "Quotas";
    QUOTAS_COMPUTE = "Compute";
    QUOTAS_NETWORK = "Network";
    QUOTAS_HIDDEN = "Your role may not read these limits.";
    LIMIT = "Limit";
    UNLIMITED = "unlimited";
    PROFILES = "Device profiles";
    PROFILES_TEXT = "A device profile names the devices that servers of a flavor get.";
    NO_PROFILES = "There are no device profiles.";
    NEW_PROFILE = "New device profile";
    GROUPS = "Groups";
    GROUPS_HINT = "One pair per line, with an empty line between groups. For one vGPU:";
    GROUPS_WRONG = "Each line of the groups must have the form key=value.";
    PROFILE_USE = "A flavor requests it with the extra spec";
    PROFILE_LOSES = "New servers can no longer request it. Servers that have its devices keep them.";
    // Explanations and the doctor.
    EXPLAIN = "Explain";
    EXPLAIN_SERVER = "A server";
    EXPLAIN_QUERY = "Allocation candidates";
    NAME_OR_ID = "Name or ID";
    QUERY = "Query";
    QUERY_HINT = "The query of GET /allocation_candidates, one condition per line:";
    QUERY_WRONG = "Each line of the query must have the form key=value.";
    NEAREST = "The nearest host is";
    CONSTRAINT = "Constraint";
    EXCLUDED = "Excluded";
    LEFT = "Left";
    SERVER_PAGE = "The page of the server";
    SUMMARY = "Summary";
    ROOM_NOW = "Hosts with room for it now";
    ROOM_IS_THERE = "There is room for it now.";
    HOSTS_AND_OPERATION = "Host and operation";
    SINCE = "since";
    WAITS_FOR = "It waits for";
    CLAIMS = "Claims";
    PROVIDER_NAME = "Provider";
    AMOUNT = "Amount";
    NOT_ATTACHED = "not attached";
    HOST_CHOSEN = "How the host was chosen:";
    HOSTS_TRIED = "Failed on:";
    DOCTOR = "Doctor";
    DOCTOR_TEXT = "The command kilonova doctor on a controller also examines its configuration, files, disk and secrets.";
    EXAMINED = "Examined";
    FINDINGS = "Findings";
    NO_FINDINGS = "No findings.";
    LEVEL = "Level";
    AREA = "Area";
    AREAS = "Areas";
    FINDING = "Finding";
    SEE_FINDINGS = "see the findings";
    // The floor.
    FLOOR = "Floor";
    NO_HOSTS = "The cloud has no compute hosts yet.";
    NO_HOST_MATCHES = "No host matches these filters.";
    SHOW = "Show";
    GROUP_BY = "Group by";
    COLOUR_BY = "Colour by";
    SIZE = "Size";
    APPLY = "Apply";
    NO_GROUP = "none";
    FIRST_HOSTS = "First hosts";
    NEXT_HOSTS = "Next hosts";
    UP = "up";
    DOWN = "down";
    FORCED_DOWN = "forced down";
    DISABLED = "disabled";
    NUMA = "NUMA";
    PCIE_SWITCH = "PCIe switch";
    NVLINK_ISLAND = "NVLink island of";
    NO_NUMA = "no NUMA node";
    VCPUS = "vCPU";
    PCPUS = "PCPU";
    MEMORY = "Memory";
    NO_SERVER = "no server";
    RESOURCE_CLASS = "Resource class";
    UNITS = "Units";
    USED = "Used";
    FREE = "Free";
    RESERVED = "Reserved";
    NEEDS_ATTENTION = "Needs attention";
    LEGEND = "Legend";
    SERVER_COLOURS = "Units of one server have the same colour and the first letters of its name.";
    // A host.
    HOST_OVERVIEW = "Overview";
    SERVICE = "Service";
    DISABLED_REASON = "Reason";
    LAST_HEARD = "Last contact";
    REGISTERED = "Registered";
    AGENT_VERSION = "Version of the agent";
    HYPERVISOR = "Hypervisor";
    ADDRESS = "Address";
    CLOCK = "Clock";
    CLOCK_UNKNOWN = "unknown";
    AGGREGATES = "Aggregates";
    CERTIFICATE = "Certificate";
    NO_CERTIFICATE = "none; the host uses the shared token";
    NO_GUESTS = "No server uses this host.";
    GUESTS = "Servers on this host";
    STEP = "Operation";
    CARD = "Device";
    UNITS_OF_DEVICE = "Units";
    DEVICE_ENABLE = "Enable";
    DEVICE_DISABLE = "Disable";
    DEVICE_HINT = "A disabled device is excluded from scheduling; servers keep the parts that they have. Enable a failed device once it is repaired, or a device with units that wait for their host. This acknowledges past health events, and declares that no guest uses those units.";
    MAINTAINING = "disabled";
    ABSENT = "absent";
    PROGRAMMED = "being programmed";
    NO_HOST_DEVICES = "This host reports no devices for guests.";
    OWNERS = "Owners of the devices";
    NO_OWNERS = "No device of this host has had an owner in the last 90 days.";
    WHEN = "When";
    CHANGE = "Change";
    TAKEN = "taken";
    FREED = "released";
    // The drain of a host.
    DRAIN = "Drain";
    DRAIN_TEXT = "The host is disabled. Its running servers are live-migrated and its stopped servers cold-migrated to other hosts; its shelved servers are offloaded. The drain continues when you leave this page.";
    DRAIN_COLD = "Also shut off, move and restart running servers that cannot live-migrate";
    DRAIN_REASON = "Reason";
    DRAIN_BEGIN = "Drain this host";
    DRAIN_PROGRESS = "Progress of the drain";
    DRAIN_RUNS = "Drain in progress";
    DRAIN_ENDED = "Drain ended";
    DRAIN_STOPPED = "Drain stopped";
    DRAIN_STOP = "Stop the drain";
    DRAIN_AGAIN = "Drain again";
    DRAIN_BEGUN = "Begun";
    DRAIN_OVER = "ended";
    DRAIN_HINT = "The drain continues when you leave this page.";
    DRAIN_EMPTY = "The host is empty.";
    DRAIN_STAYS = "No other server can be moved automatically.";
    DRAIN_HALTED = "Moves that were already requested continue.";
    DRAIN_WAITS = "waits";
    DRAIN_STAY = "stays";
    DRAIN_FAILED = "it did not move; its timeline shows why";
    DRAIN_NEXT_TRY = "The next attempt is at";
    DRAIN_LATER = "moves next";
    DRAIN_NOT_MOVED = "its move was not requested";
    DRAINED_BY = "drained in the dashboard";
    UNDRAIN = "Enable this host";
    DISABLE_HOST = "Disable without a drain";
    DISABLE_TEXT = "A disabled host receives no new servers. Its own servers stay.";
    REMEDY = "What to do";
    WHY = "Why it stays";
    // Capacity.
    CAPACITY = "Capacity";
    CAPACITY_FLAVORS = "Servers that fit now, for each flavor by itself";
    MORE_SERVERS = "More servers";
    ON_HOSTS = "On hosts";
    REASON = "Reason";
    DEVICE_KINDS = "Devices";
    TRAITS = "Traits";
    PARTLY_USED = "Partly used";
    FREE_UNITS = "Free units";
    DIVIDED_UNITS = "Of these on partly used devices";
    RESERVED_UNITS = "Reserved units";
    NO_FLAVORS = "There are no flavors.";
    USAGE = "Usage";
    PERIOD = "Period";
    NO_SAMPLES = "There are no samples for this period yet. A controller takes the first one a minute after it starts.";
    PLOT_LINES = "The solid line is the amount in use, the dashed line the capacity. Times without a sample are gaps.";
    MAKE_ROOM = "Make room";
    NO_GAIN = "One or two live migrations cannot make room for more.";
    MOVE_SERVER = "Server";
    MOVE_FROM = "From";
    MOVE_TO = "To";
    // Enrollment.
    ENROLL = "Enroll a host";
    ENROL_TEXT = "A new host joins the cloud with one command, which contains a token. The token works once.";
    ENROL_HOST = "Name of the host";
    ENROL_HOST_HINT = "Leave it empty for any new host.";
    ENROL_VALID = "Valid for";
    ENROL_REPLACE = "The host exists already: the machine that runs the command takes over its name, its guests and its devices";
    ENROL_BUTTON = "Create the command";
    ENROL_RUN = "Run this as root on the machine that joins. It is shown only once.";
    ENROL_UNTIL = "Valid until";
    CERTIFICATES = "Certificates";
    EXPIRES = "Expires";
    TOKENS = "Open tokens";
    ANY_HOST = "any new host";
    NO_LISTENER = "This cloud has no listener for hosts, so none can join. Set `listen` in the section [node] of the configuration, or start `kilonova serve` with `--node-listen ADDRESS:PORT`.";
}

/// Which hosts are shown.
pub(crate) fn show(choice: Show) -> &'static str {
    match choice {
        Show::All => "all hosts",
        Show::Problems => "with problems",
        Show::Free => "with free units",
        Show::Down => "down",
        Show::Disabled => "disabled",
    }
}

/// The property by which hosts are grouped.
pub(crate) fn group(choice: Group) -> &'static str {
    match choice {
        Group::Zone => "zone",
        Group::Aggregate => "aggregate",
        Group::Model => "model",
        Group::Nothing => "nothing",
    }
}

/// The meaning of colours.
pub(crate) fn colour(choice: Colour) -> &'static str {
    match choice {
        Colour::Project => "project",
        Colour::Server => "server",
        Colour::Health => "health",
    }
}

/// How large hosts are drawn.
pub(crate) fn size_of_hosts(choice: Size) -> &'static str {
    match choice {
        Size::Fitting => "by their number",
        Size::Large => "large",
        Size::Small => "small",
    }
}

/// The sign and the word for the state of a unit.
pub(crate) fn unit(state: Use) -> (&'static str, &'static str) {
    match state {
        Use::Owned => ("●", "used"),
        Use::WithoutHandle => ("↗", "used without a handle"),
        Use::Dirty => ("~", "dirty"),
        Use::Cleaning => ("≈", "being cleaned"),
        Use::Failed => ("!", "withheld"),
        Use::Unhealthy => ("✕", "failed"),
        Use::Maintaining => ("‖", "disabled"),
        Use::Programming => ("…", "being programmed"),
        Use::Absent => ("∅", "absent"),
        Use::Reserved => ("–", "reserved"),
        Use::Free => ("", "free"),
    }
}

/// The sign and the word for the health of a device.
pub(crate) fn health(health: &str) -> (&'static str, &'static str) {
    match health {
        "healthy" => ("✓", "healthy"),
        "degraded" => ("!", "degraded"),
        "failed" => ("✕", "failed"),
        _ => ("?", "unknown"),
    }
}

/// An owner of a unit.
pub(crate) fn owned(server: &str, project: &str, kind: &str, address: &str) -> String {
    format!("{server}, project {project}, {kind} at {address}")
}

/// The note about an operation that this version cannot read.
pub(crate) fn unreadable(why: &str) -> String {
    format!("A newer version began this operation ({why}).")
}

/// A number of hosts.
pub(crate) fn hosts(count: usize) -> String {
    match count {
        1 => "1 host".to_owned(),
        count => format!("{count} hosts"),
    }
}

/// A number of servers.
pub(crate) fn servers(count: usize) -> String {
    match count {
        1 => "1 server".to_owned(),
        count => format!("{count} servers"),
    }
}

/// The number of hosts that pass a page's filters.
pub(crate) fn hosts_shown(shown: usize, all: usize) -> String {
    format!("{shown} of {all} hosts")
}

/// The number of projects that a legend leaves out.
pub(crate) fn more_projects(count: usize) -> String {
    match count {
        1 => "and 1 more project".to_owned(),
        count => format!("and {count} more projects"),
    }
}

/// A part of a total.
pub(crate) fn of(used: i64, all: i64) -> String {
    format!("{used} of {all}")
}

/// An amount of memory and its total, both given in MiB.
pub(crate) fn of_memory(used: i64, all: i64) -> String {
    format!("{} of {} GiB", used / 1024, all / 1024)
}

/// The number of free units of a small card.
pub(crate) fn free_of(totals: &std::collections::BTreeMap<Use, i64>) -> String {
    let free = totals.get(&Use::Free).copied().unwrap_or_default();
    format!("{free} of {} free", totals.values().sum::<i64>())
}

/// The deviation of a host's clock, in seconds.
pub(crate) fn clock(ahead: f64) -> String {
    let how = if ahead < 0.0 { "behind" } else { "ahead of" };
    format!("{:.1} s {how} the controller", ahead.abs())
}

/// A port that is created on a network.
pub(crate) fn new_port(network: &str) -> String {
    format!("A new port on the network {network}")
}

/// A port without a server.
pub(crate) fn free_port(port: &str, addresses: &str) -> String {
    format!("The port {port} ({addresses})")
}

/// The step of a drain in words.
pub(crate) fn drain_step(step: &Step) -> &'static str {
    match step {
        Step::Live => "moves by live migration",
        Step::Cold => "moves by cold migration",
        Step::Confirm => "its move is confirmed",
        Step::Offload => "is offloaded",
        Step::Wait(_) => "waits",
        Step::Stays(_) => "stays",
    }
}

/// The progress of a drain, as a sentence.
pub(crate) fn drained(gone: usize, all: usize) -> String {
    format!("{gone} of {all} servers have left the host.")
}

/// The number of hosts on which servers can start.
pub(crate) fn hosts_up(up: u64, all: u64) -> String {
    format!("{up} of {all} compute hosts are up and enabled.")
}

/// The period of plots.
pub(crate) fn period(period: &str) -> &str {
    match period {
        "day" => "Last day",
        "week" => "Last week",
        "month" => "Last month",
        other => other,
    }
}

/// A plot in words.
pub(crate) fn plot(last: Option<(i64, i64)>, most: i64) -> String {
    match last {
        Some((used, capacity)) => {
            format!("{used} of {capacity} in use at the last sample, at most {most} in this period")
        }
        None => format!("not in the last samples, at most {most} in use in this period"),
    }
}

/// The gain of live migrations.
pub(crate) fn gain(moves: usize, gain: i64) -> String {
    match moves {
        1 => format!("1 live migration makes room for {gain} more."),
        moves => format!("{moves} live migrations make room for {gain} more."),
    }
}

/// The gain of a drain.
pub(crate) fn drain_gain(host: &str, servers: u64, gain: i64) -> String {
    let servers = match servers {
        1 => "1 server".to_owned(),
        count => format!("{count} servers"),
    };
    format!("A drain of {host} ({servers}) makes room for {gain} more.")
}

/// The title of a flavor's capacity.
pub(crate) fn room_for(flavor: &str) -> String {
    format!("Room for {flavor}")
}

/// A duration in hours.
pub(crate) fn hours(hours: i64) -> String {
    match hours {
        1 => "1 hour".to_owned(),
        hours if hours % 24 == 0 && hours > 24 => format!("{} days", hours / 24),
        hours => format!("{hours} hours"),
    }
}

/// A sign and a word for the status of an image.
pub(crate) fn image_status(status: &str) -> (&'static str, &'static str) {
    match status {
        "active" => ("●", "active"),
        "queued" => ("○", "without data"),
        "saving" | "uploading" | "importing" => ("◌", "being uploaded"),
        "deactivated" => ("‖", "deactivated"),
        "killed" => ("✕", "failed"),
        _ => ("?", "unknown"),
    }
}

/// The visibility of an image in words.
pub(crate) fn visibility(visibility: &str) -> &str {
    match visibility {
        "public" => "public",
        "private" => "this project",
        "shared" => "this project and the projects that it is shared with",
        "community" => "everyone who knows its ID",
        other => other,
    }
}

/// The direction of traffic.
pub(crate) fn direction(direction: &str) -> &str {
    match direction {
        "ingress" => "to the server",
        "egress" => "from the server",
        other => other,
    }
}

/// A security group by its id.
pub(crate) fn group_named(id: &str) -> String {
    format!("group {id}")
}

/// A group of a device profile, counted from 0.
pub(crate) fn group_of_profile(at: usize) -> String {
    format!("Group {}", at + 1)
}

/// A limited resource.
pub(crate) fn quota(name: &str) -> String {
    let known = match name {
        "ram" => "Memory (MiB)",
        "cores" => "vCPU",
        "instances" => "Servers",
        "key_pairs" => "Key pairs",
        "server_groups" => "Server groups",
        "server_group_members" => "Members of a server group",
        "metadata_items" => "Metadata items of a server",
        "network" => "Networks",
        "subnet" => "Subnets",
        "port" => "Ports",
        "router" => "Routers",
        "floatingip" => "Floating IPs",
        "security_group" => SECURITY_GROUPS,
        "security_group_rule" => "Security group rules",
        "rbac_policy" => "RBAC policies",
        "subnetpool" => "Subnet pools",
        other => return other.replace('_', " "),
    };
    known.to_owned()
}

/// The number of findings that a page leaves out.
pub(crate) fn more_findings(count: u64) -> String {
    format!("and {count} more; kilonova doctor lists all of them")
}

/// How many servers fit.
pub(crate) fn room(servers: u64, hosts: u64) -> String {
    let servers = match servers {
        1 => "1 more server of this flavor fits".to_owned(),
        count => format!("{count} more servers of this flavor fit"),
    };
    match hosts {
        1 => format!("{servers} now, on 1 host."),
        count => format!("{servers} now, on {count} hosts."),
    }
}

/// Nova's status as pages show it, with a sign that does not need colour.
pub(crate) fn status(status: &str) -> (&'static str, &'static str) {
    match status {
        "ACTIVE" => ("●", "active"),
        "BUILD" => ("◌", "building"),
        "ERROR" => ("✕", "error"),
        "SHUTOFF" => ("○", "shut off"),
        "PAUSED" => ("‖", "paused"),
        "SUSPENDED" => ("‖", "suspended"),
        "REBOOT" => ("↻", "rebooting"),
        "HARD_REBOOT" => ("↻", "hard rebooting"),
        "REBUILD" => ("↻", "rebuilding"),
        "RESIZE" => ("⇄", "resizing"),
        "VERIFY_RESIZE" => ("?", "confirm the resize"),
        "REVERT_RESIZE" => ("⇄", "reverting the resize"),
        "MIGRATING" => ("⇄", "migrating"),
        "RESCUE" => ("+", "rescued"),
        "SHELVED" => ("□", "shelved"),
        "SHELVED_OFFLOADED" => ("□", "shelved, offloaded"),
        "SOFT_DELETED" => ("✕", "deleted, restorable"),
        "DELETED" => ("✕", "deleted"),
        "PASSWORD" => ("↻", "password change"),
        _ => ("?", "unknown"),
    }
}

/// Nova's power state as pages show it.
pub(crate) fn power(number: Option<i64>) -> &'static str {
    match number {
        Some(1) => "running",
        Some(3) => "paused",
        Some(4) => "shut off",
        Some(6) => "crashed",
        Some(7) => "suspended",
        _ => "no guest",
    }
}

/// An instance action as pages show it.
pub(crate) fn instance_action(name: &str) -> String {
    let known = match name {
        "create" => "Launch",
        "delete" => "Delete",
        "stop" => STOP,
        "start" => START,
        "reboot" => REBOOT,
        "rebuild" => REBUILD,
        "resize" => RESIZE,
        "confirmResize" => CONFIRM_RESIZE,
        "revertResize" => REVERT_RESIZE,
        "migrate" => MIGRATE,
        "live-migration" => LIVE_MIGRATE,
        "evacuate" => EVACUATE,
        "createImage" => SNAPSHOT,
        "createBackup" => BACKUP,
        "attach_interface" => ATTACH_PORT,
        "detach_interface" => DETACH_PORT,
        "attach_volume" => ATTACH_VOLUME,
        "detach_volume" => DETACH_VOLUME,
        "pause" => PAUSE,
        "unpause" => UNPAUSE,
        "suspend" => SUSPEND,
        "resume" => RESUME,
        "rescue" => RESCUE,
        "unrescue" => UNRESCUE,
        "shelve" => SHELVE,
        "shelveOffload" => OFFLOAD,
        "unshelve" => UNSHELVE,
        "lock" => LOCK,
        "unlock" => UNLOCK,
        other => return other.replace(['_', '-'], " "),
    };
    known.to_owned()
}

/// The note below a list that leaves out older servers.
pub(crate) fn only_newest(count: usize) -> String {
    format!("Only the newest {count} are shown. Type more of the name to find the others.")
}

/// The note below a list that leaves out subnets.
pub(crate) fn only_subnets(count: usize) -> String {
    format!("Only {count} subnets are shown. The command openstack subnet list has all of them.")
}

/// The label of a server's checkbox.
pub(crate) fn pick(server: &str) -> String {
    format!("Choose {server}")
}

/// The title of a confirmation.
pub(crate) fn question(action: &str, server: &str) -> String {
    format!("{action}: {server}")
}

/// The title of a page in the browser's tab.
pub(crate) fn title(page: &str) -> String {
    format!("{page} · {NAME}")
}

/// A flavor's size.
pub(crate) fn size(vcpus: i64, ram: i64, disk: i64) -> String {
    let ram = match ram {
        mib if mib >= 1024 && mib % 1024 == 0 => format!("{} GiB", mib / 1024),
        mib => format!("{mib} MiB"),
    };
    format!("{vcpus} vCPU, {ram} memory, {disk} GiB disk")
}
