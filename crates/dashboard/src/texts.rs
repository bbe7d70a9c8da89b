//! Every sentence and word that pages show, in one place, so that they can be translated.
//!
//! Messages of the services are shown as the services write them.

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
    SESSION_ENDS = "Your session ends soon. Log in again to continue; what you have typed would be lost.";
    SESSION_ENDED = "Your session has ended.";
    LOG_IN_AGAIN = "Log in again";
    LIVE_LOST = "The connection to the server is interrupted. The page may be out of date; it reconnects by itself.";
    // Login.
    LOGIN = "Log in";
    USER = "User name";
    PASSWORD = "Password";
    PROJECT_OPTIONAL = "Project";
    PROJECT_HINT = "Leave it empty to choose among your projects.";
    DOMAIN = "Domain";
    MORE = "Project and domain";
    WITH_CREDENTIAL = "Application credential";
    WITH_PASSWORD = "Password";
    CREDENTIAL_ID = "Credential ID";
    CREDENTIAL_SECRET = "Secret";
    WRONG_LOGIN = "The user name, the password or the project is wrong.";
    WRONG_CREDENTIAL = "The ID or the secret of the application credential is wrong, or it has expired.";
    LOGIN_BUSY = "Too many people log in at once. Try again in a few seconds.";
    LOGIN_STALE = "This form was too old. Try again.";
    LOGIN_HINT = "The administrator's first password is in the file openrc of the state directory.";
    SESSION_TOO_LARGE = "The token of this project is too large for a cookie. Use another project, or the command line.";
    NO_PROJECT = "You have a role in no project. Ask an administrator for one.";
    WRONG_PROJECT = "You have no role in this project.";
    CHOOSE_PROJECT = "Choose a project";
    USE_PROJECT = "Use";
    CURRENT_PROJECT = "in use";
    LOGGED_OUT = "You are logged out.";
    LOGGED_OUT_ONLY_HERE = "You are logged out of this browser, but the service could not revoke the token. It ends by itself.";
    // Errors.
    NOT_FOUND = "Not found";
    NOT_FOUND_TEXT = "There is nothing at this address, or your project has no access to it.";
    FORBIDDEN = "Not allowed";
    FORGED_TEXT = "This form does not belong to your session. Go back, reload the page and try again.";
    REFUSED = "Refused";
    UNAVAILABLE = "Temporarily unavailable";
    UNAVAILABLE_TEXT = "The service cannot answer now. Try again in a moment.";
    CROWDED_TEXT = "Too many pages are open. Close some, or try again in a moment.";
    BROKEN = "An error of the service";
    BROKEN_TEXT = "The operator finds the cause in the log by the request's ID.";
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
    ANY_STATUS = "any";
    ALL_PROJECTS = "All projects";
    FILTER = "Filter";
    CLEAR_FILTERS = "Clear";
    NEXT_PAGE = "Older servers";
    FIRST_PAGE = "Newest servers";
    VOLUME = "a volume";
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
    DEVICE_ASKED = "Asked for by";
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
    NO_ACTIONS = "Your role allows no action in this state.";
    CONSOLE_LOG = "Console log";
    CONSOLE_LOG_EMPTY = "The guest has written nothing to its serial port.";
    CONSOLE_LOG_LINES = "The last 200 lines";
    CONSOLE = "Console";
    OPEN_CONSOLE = "Open the console";
    CONSOLE_HINT = "The console is in a frame; press its screen before you type.";
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
    STOP_LOSES = "The guest is shut off. Its disk, devices and addresses stay; what is only in its memory is lost.";
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
    CONFIRM_RESIZE_LOSES = "The server stays as it is now, and the resources of its earlier size are released. It cannot be reverted afterwards.";
    REVERT_RESIZE = "Revert resize";
    REVERT_RESIZE_LOSES = "The server returns to its earlier size and host. Everything that was written to its disk since the resize is lost.";
    RESCUE = "Rescue";
    RESCUE_LOSES = "The guest is shut off and boots from a rescue image, with its own disk beside it.";
    UNRESCUE = "Unrescue";
    SHELVE = "Shelve";
    SHELVE_LOSES = "The guest is shut off and its disk becomes an image. Later its devices are released for others, and it needs free ones to start again.";
    UNSHELVE = "Unshelve";
    OFFLOAD = "Offload";
    LOCK = "Lock";
    UNLOCK = "Unlock";
    RESTORE = "Restore";
    LIVE_MIGRATE = "Live migrate";
    MIGRATE = "Migrate";
    MIGRATE_LOSES = "The guest is shut off while the server moves to another host.";
    EVACUATE = "Evacuate";
    EVACUATE_LOSES = "The server is rebuilt on another host. Do it only when its host is down for good: unless its disk is shared, its content is lost.";
    REBUILD = "Rebuild";
    REBUILD_LOSES = "The server's disk is made anew from its image. Everything on the disk is lost; devices and addresses stay.";
    DELETE = "Delete";
    DELETE_LOSES = "The server and its disk are deleted, and its devices are released.";
    IMAGE_NAME = "Name of the image";
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
    LAUNCH_USER_DATA_HINT = "A cloud-init file or a script, which the guest gets at its first boot.";
    LAUNCH_BUTTON = "Launch";
    LAUNCH_CHECK = "Check whether it fits";
    LAUNCH_NO_FLAVORS = "There are no flavors. An administrator creates one.";
    LAUNCH_NO_IMAGES = "There are no images. Upload one first.";
    LAUNCH_MISSING = "Choose a flavor and an image, and type a name.";
    LAUNCH_TOO_MUCH = "The user data is too large; the limit is 48 KiB.";
    ROOM_UNKNOWN = "Capacity could not be counted now. The request may still fit.";
    ROOM_NONE = "It does not fit now.";
    ROOM_SHORT = "So many do not fit now.";
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

/// Nova's status for people, with a sign that does not need colour.
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

/// Nova's power state for people.
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

/// An instance action for people.
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
        "attach_interface" => "Attach port",
        "detach_interface" => "Detach port",
        "attach_volume" => "Attach volume",
        "detach_volume" => "Detach volume",
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
