//! A bootable disk: one sector of BIOS code that writes a line to the screen and the serial port and
//! halts. It needs no download and has no third-party licence.

/// Size of the image: whole MiB, like every guest's disk.
const SIZE: usize = 1024 * 1024;
const LINE: &[u8] = b"\r\nKilonova: this guest has booted.\r\n\0";

/// 16-bit code at 0x7c00; the line follows it.
const CODE: [u8; 38] = [
    0x31, 0xc0, // xor ax, ax
    0x8e, 0xd8, // mov ds, ax
    0xbe, 0x26, 0x7c, // mov si, line
    0xfc, // cld
    0xac, // next: lodsb
    0x84, 0xc0, // test al, al
    0x74, 0x16, // jz halt
    0x50, // push ax
    0xb4, 0x0e, // mov ah, 0x0e
    0xbb, 0x07, 0x00, // mov bx, 7
    0xcd, 0x10, // int 0x10
    0xba, 0xfd, 0x03, // mov dx, 0x3fd
    0xec, // wait: in al, dx
    0xa8, 0x20, // test al, 0x20
    0x74, 0xfb, // jz wait
    0x58, // pop ax
    0xb2, 0xf8, // mov dl, 0xf8
    0xee, // out dx, al
    0xeb, 0xe5, // jmp next
    0xf4, // halt: hlt
    0xeb, 0xfd, // jmp halt
];

/// The whole raw disk.
pub(super) fn disk() -> Vec<u8> {
    let mut disk = vec![0; SIZE];
    let sector = CODE.iter().chain(LINE);
    disk.iter_mut().zip(sector).for_each(|(to, from)| *to = *from);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_refers_to_its_line_and_jumps_to_its_targets() {
        let disk = disk();
        let line = usize::from(disk[5]) + 256 * usize::from(disk[6]) - 0x7c00;
        assert!(disk[line..].starts_with(LINE));
        let target = |at: usize| (at as i64 + 2 + i64::from(disk[at + 1] as i8)) as usize;
        let (jumps, next, wait, halt) = ([11, 27, 33, 36], 8, 24, 35);
        assert_eq!(jumps.map(target), [halt, wait, next, halt]);
        assert_eq!((disk[next], disk[wait], disk[halt]), (0xac, 0xec, 0xf4));
        assert_eq!((disk[510], disk[511], disk.len() % SIZE), (0x55, 0xaa, 0));
    }
}
