// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// loadOf makes this program a load instead of the tests. Its words:
//
//	reads DISK BYTES AT-ONCE PAUSE    reads so much of a disk at any place, past the page cache, and pauses, so many at once; the disk
//	                                  is its descriptor 3, since a container may not open it
//	holds BYTES PAUSE                 takes anonymous memory and gives it back, and pauses
//	caches FILE                       reads a file into the page cache over and over
const loadOf = "KOORD_RT_LOAD"

// loading runs a load in a container's cgroup until the result is called. It is there before it does anything: what it makes others wait for, and
// waits for itself, is the container's.
func (r *rig) loading(dir string, words ...string) (stop func()) {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), loadOf+"="+strings.Join(words, " "))
	said := &syncBuffer{}
	cmd.Stderr = said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if words[0] == "reads" {
		disk, err := os.OpenFile(words[1], os.O_RDONLY|unix.O_DIRECT, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		defer disk.Close()
		cmd.ExtraFiles = []*os.File{disk}
	}
	begin, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			_ = cmd.Process.Kill() // it is not to have ended before
			if err := cmd.Wait(); said.String() != "" {
				r.t.Errorf("load %q: %v: %s", words, err, said)
			}
		})
	}
	r.t.Cleanup(stop)
	if err := cgroups.Write(dir, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
		r.t.Fatal(err)
	}
	if err := begin.Close(); err != nil {
		r.t.Fatal(err)
	}
	return stop
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
	case len(words) == 5 && words[0] == "reads":
		disk := os.NewFile(3, words[1])
		end, err := disk.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		errs := make(chan error)
		for range number(3) {
			go func() { errs <- readsDisk(disk, int(end), number(2), pause()) }()
		}
		return <-errs
	case len(words) == 3 && words[0] == "holds":
		return holdsMemory(number(1), pause())
	case len(words) == 2 && words[0] == "caches":
		return cachesFile(words[1])
	}
	return fmt.Errorf("load %q is not known", words)
}

func readsDisk(disk *os.File, end, size int, pause time.Duration) error {
	buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // at a page, as O_DIRECT wants it
	if err != nil {
		return err
	}
	for {
		if _, err := disk.ReadAt(buf, int64(rand.IntN(end/size)*size)); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

func holdsMemory(size int, pause time.Duration) error {
	for {
		mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
		if err != nil {
			return err
		}
		if err := unix.Munmap(mem); err != nil {
			return err
		}
		time.Sleep(pause)
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
