// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package guestcfg is the agreement between the virtual machine lane's host side (test/lab/vm) and the program that is
// PID 1 of its guests (test/lab/vm/guest): file places, disk names and the two JSON documents they exchange.
// It imports nothing of this project.
package guestcfg

// Places inside the guest.
const (
	ConfigFile = "/koord-vm.json" // in the initramfs, and in the root filesystem of a systemd guest
	ModuleDir  = "/modules"       // in the initramfs: .ko files, loaded in name order
	Busybox    = "/busybox"       // in the initramfs of a bare guest
	DiskDir    = "/disk"          // where the ext4 disk is mounted
	OutDir     = "/out"           // what the command leaves here comes back
	Program    = "/koord-vm"      // this program, in both places
)

// Serial numbers of the virtio disks, which is how the guest tells them apart.
const (
	DiskSerial = "koord-disk" // ext4, read-write: the caller's files and free space
	OutSerial  = "koord-out"  // raw: a tar stream written at the end
	RootSerial = "koord-root" // ext4: root filesystem of a systemd guest
	SlowSerial = "koord-slow" // raw and empty: a disk with so many bytes per second and no more
)

// Entries of the tar stream besides "out/...". ExitEntry is the last one: a stream without it is not complete.
const (
	StdoutEntry = "stdout"
	StderrEntry = "stderr"
	ExitEntry   = "exit.json"
)

// Begins is the console's line before the command runs: until it comes, nothing of the caller's has run.
const Begins = "koord-vm: the command begins"

// CopyLimit in bytes: smaller files are copied to their place, so that programs can replace them by rename; larger ones
// and folders are bind mounts from the disk.
const CopyLimit = 1 << 20

// File is one of the caller's files.
type File struct {
	Source string // path on the disk, relative to DiskDir
	Target string // absolute path in the guest
}

// Config is what the guest does.
type Config struct {
	Systemd  bool // hand over to systemd instead of being init
	CgroupV1 bool // mount the controllers' v1 hierarchies instead of cgroup2
	Command  []string
	Env      []string // KEY=value, wins over the guest's own
	Files    []File
	Seconds  int  // the command is killed after this many seconds; 0 is no limit
	Tee      bool // copy the command's output to the console
}

// Exit is how it ended.
type Exit struct {
	Code     int    // exit status, 128+N after signal N, 124 after Config.Seconds
	TimedOut bool   // the command was killed after Config.Seconds
	Setup    string // what failed before the command could run; empty if nothing did
}
