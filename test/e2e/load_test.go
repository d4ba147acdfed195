// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// loadOf makes this program a load instead of the tests. Its words:
//
//	reads DISK CPU BYTES AT-ONCE PAUSE
//	                                 reads so much of a disk at any place, past the page cache, and pauses, so many at once, on that CPU if it
//	                                 is named; the disk is its descriptor 3, since a container may not open it
//	works CPU BUSY PAUSE             computes until it has had so much of a CPU, of that one if it is named, and pauses
//	holds BYTES PAUSE                takes anonymous memory and gives it back, and pauses
//	keeps NAME BYTES                 takes anonymous memory, touches all of it, and keeps it, under a name of its own (comm)
//	caches FILE                      reads a file into the page cache over and over
//	asks ADDRESS PAUSE               sends something small by TCP, waits until it is back, and pauses; prints when it sent and how long it
//	                                 took, in µs, a line for each
//	pours ADDRESS CONNECTIONS        sends by TCP as much as it can
//
// The first four print a line when they have done it for the first time.
const loadOf = "KOORD_RT_LOAD"

// burden is a load that runs in a container's cgroups, and in its pod's network where it is about that: this program's, or stress-ng.
type burden struct {
	t     *testing.T
	words []string
	cmd   *exec.Cmd
	out   syncBuffer
	said  syncBuffer
	once  sync.Once
	ended <-chan struct{}
}

// loading begins a load. It is in place before it does anything: what it makes others wait for, and waits for itself, is the container's.
func (r *rig) loading(run *kubelet.Running, words ...string) *burden {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	l := &burden{t: r.t, words: words, cmd: exec.Command(self)}
	switch words[0] {
	case "reads":
		disk, err := os.OpenFile(words[1], os.O_RDONLY|unix.O_DIRECT, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		defer disk.Close()
		l.cmd.ExtraFiles = []*os.File{disk}
	case "asks", "pours":
		pid, err := r.pid(run, "main")
		if err != nil {
			r.t.Fatal(err)
		}
		l.cmd = exec.Command("nsenter", "-t", strconv.Itoa(pid), "-n", self)
	}
	l.cmd.Env = append(os.Environ(), loadOf+"="+strings.Join(words, " "))
	l.begin(r.containerDirs(run))
	return l
}

// begin starts it, and closes its standard input when it is in the cgroup of these directories.
func (l *burden) begin(dirs []string) {
	l.t.Helper()
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.said
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begin, err := l.cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if l.ended, err = child.Start(l.cmd, syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(l.stop)
	for _, dir := range dirs {
		if err := cgroups.Write(dir, "cgroup.procs", strconv.Itoa(l.cmd.Process.Pid)); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := begin.Close(); err != nil {
		l.t.Fatal(err)
	}
}

// hasBegun waits until it has printed something.
func (l *burden) hasBegun() {
	l.t.Helper()
	for limit := time.Now().Add(patience(shortest)); l.out.String() == ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			l.t.Fatalf("load %q does not begin: %s", l.words, l.said.String())
		}
	}
}

// stop ends it. One that has ended by itself has failed.
func (l *burden) stop() {
	l.once.Do(func() {
		select {
		case <-l.ended:
			l.t.Errorf("load %q: %s: %s", l.words, l.cmd.ProcessState, l.said.String())
		default:
			_ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGKILL) // it may be about to end
			<-l.ended
		}
	})
}

// runLoad never returns but with an error.
func runLoad(words []string) error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		return fmt.Errorf("load %q: nobody should have written", words)
	}
	number := func(i int) int {
		n, err := strconv.Atoi(words[i])
		if err != nil {
			panic(fmt.Sprintf("load %q: %v", words, err))
		}
		return n
	}
	pause := func() time.Duration {
		d, err := time.ParseDuration(words[len(words)-1])
		if err != nil {
			panic(fmt.Sprintf("load %q: %v", words, err))
		}
		return d
	}
	switch {
	case len(words) == 6 && words[0] == "reads":
		disk := os.NewFile(3, words[1])
		end, err := disk.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		errs := make(chan error)
		for range number(4) {
			go func() {
				runtime.LockOSThread()
				if words[2] != anywhere {
					var set unix.CPUSet
					set.Set(number(2))
					if err := unix.SchedSetaffinity(0, &set); err != nil {
						errs <- err
						return
					}
				}
				errs <- readsDisk(disk, int(end), number(3), pause())
			}()
		}
		return <-errs
	case len(words) == 4 && words[0] == "works":
		busy, err := time.ParseDuration(words[2])
		if err != nil {
			return err
		}
		if words[1] == anywhere {
			return worksOnCPU(nil, busy, pause())
		}
		var set unix.CPUSet
		set.Set(number(1))
		return worksOnCPU(&set, busy, pause())
	case len(words) == 3 && words[0] == "holds":
		return holdsMemory(number(1), pause())
	case len(words) == 3 && words[0] == "keeps":
		return keepsMemory(words[1], number(2))
	case len(words) == 2 && words[0] == "caches":
		return cachesFile(words[1])
	case len(words) == 3 && words[0] == "asks":
		return asksPeer(words[1], pause())
	case len(words) == 3 && words[0] == "pours":
		errs := make(chan error)
		for range number(2) {
			go func() { errs <- poursOut(words[1]) }()
		}
		return <-errs
	}
	return fmt.Errorf("load %q is not known", words)
}

func readsDisk(disk *os.File, end, size int, pause time.Duration) error {
	buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // at a page, as O_DIRECT wants it
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		if _, err := disk.ReadAt(buf, int64(rand.IntN(end/size)*size)); err != nil {
			return err
		}
		if first {
			fmt.Println("has begun")
		}
		time.Sleep(pause)
	}
}

// worksOnCPU pauses in the kernel: its thread is what waits for a CPU afterwards.
func worksOnCPU(set *unix.CPUSet, busy, pause time.Duration) error {
	runtime.LockOSThread()
	if set != nil {
		if err := unix.SchedSetaffinity(0, set); err != nil {
			return err
		}
	}
	had := func() (time.Duration, error) {
		var ts unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
		return time.Duration(ts.Nano()), err
	}
	rest := unix.NsecToTimespec(pause.Nanoseconds())
	for first := true; ; first = false {
		begun, err := had()
		for at := begun; err == nil && at-begun < busy; {
			at, err = had()
		}
		if err != nil {
			return err
		}
		if first {
			fmt.Println("has begun")
		}
		_ = unix.Nanosleep(&rest, nil) // one that a signal ends is a shorter one
	}
}

func holdsMemory(size int, pause time.Duration) error {
	for first := true; ; first = false {
		mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
		if err != nil {
			return err
		}
		if err := unix.Munmap(mem); err != nil {
			return err
		}
		if first {
			fmt.Println("has begun")
		}
		time.Sleep(pause)
	}
}

func keepsMemory(name string, size int) error {
	if err := os.WriteFile("/proc/self/comm", []byte(name), 0); err != nil {
		return err
	}
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for at := 0; at < size; at += os.Getpagesize() {
		mem[at] = 1
	}
	fmt.Println("has begun")
	for {
		time.Sleep(time.Hour)
		runtime.KeepAlive(mem)
	}
}

func cachesFile(name string) error {
	buf := make([]byte, 256<<10)
	for {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		for err == nil {
			_, err = f.Read(buf)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

func asksPeer(address string, pause time.Duration) error {
	c, err := net.DialTimeout("tcp", address, patience(shortest))
	if err != nil {
		return err
	}
	defer c.Close()
	for data := make([]byte, 64); ; time.Sleep(pause) {
		begun := time.Now()
		_, err := c.Write(data)
		if err == nil {
			_, err = io.ReadFull(c, data)
		}
		if err != nil {
			return err
		}
		fmt.Println(begun.UnixMicro(), time.Since(begun).Microseconds())
	}
}

func poursOut(address string) error {
	c, err := net.DialTimeout("tcp", address, patience(shortest))
	if err != nil {
		return err
	}
	defer c.Close()
	for data := make([]byte, 16<<10); ; {
		if _, err := c.Write(data); err != nil {
			return err
		}
	}
}
