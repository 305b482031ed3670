// Package statedir keeps records of grants in a directory, so that a sidecar
// that was killed takes its leases up again when it is started anew. It drives
// files and knows their format; what a record means is the locker's business.
//
// # Files
//
// All are in a folder of their own beneath the configured directory, which may
// belong to somebody else (a volume's root does). The folder is locked while it
// is in use (flock), so two sidecars never share one.
//
//	state       the records
//	state.next  the same, while it is being written anew
//	reserve     space that is given up when the volume is full
//
// # Format
//
// state is a log of lines. Each is the CRC-32 of what follows in eight hex
// digits, a space, and a JSON object with one field: head, floor or grant. The
// head comes first; it names the format, the boot of the machine and the store.
// Records are whole, and the last one of a grant counts. When more than half of
// the file is out of date it is written anew beside it and put in its place by
// a rename.
//
// Nothing is ever synced to a disk. A process that is killed leaves all that it
// has written in the kernel's memory; a machine that goes down takes every
// lease with it, since instants of another boot mean nothing.
//
// # What is believed
//
// A last line without an end was being written when the process was killed:
// what it was about has not been done, so it is left out. Anything else that
// cannot be read is damage, and then no lease is believed; what can be read is
// used to give locks back. A file of a newer format is not read at all.
package statedir
