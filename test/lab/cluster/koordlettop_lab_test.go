// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// columns of koordctl's tables have two spaces between them at least, and what stands in them one.
var columns = regexp.MustCompile(`  +`)

// topClasses: koordctl top shows the node and every QoS class with its pods and with what they use and request. Of LS ls spins at 100m, victim computes
// for a part of the time, and prod requests most of the memory; of BE be-low and be-kept hold 64 and 128 MiB.
func (n *governed) topClasses(t *testing.T) {
	t.Helper()
	asked := amount(t, n.prod.Str("spec", "containers", 0, "resources", "requests", "memory"))
	// Pods, CPUs used and requested, memory used and requested: from, to. A table rounds to hundredths of a CPU, and to the GiB.
	want := map[string][5][2]float64{
		"LSE": {}, "LSR": {},
		"LS": {{3, 3}, {0.05, 1}, {0.1, 0.1}, {0.01 * mib, 64 * mib}, {0.94 * asked, 1.06*asked + 64*mib}},
		"BE": {{2, 2}, {0, 0.1}, {}, {191 * mib, 240 * mib}, {}},
	}
	eventually(t, 20*time.Second, func() error {
		text, err := n.shows(t)
		if err != nil {
			return err
		}
		for _, part := range []string{n.k.Node + ": koordlet ", fmt.Sprintf(" of %d CPUs", runtime.NumCPU())} {
			if !strings.Contains(text, part) {
				return fmt.Errorf("koordctl top does not say %q:\n%s", part, text)
			}
		}
		shown := 0
		for line := range strings.Lines(text) {
			cells := columns.Split(strings.TrimSpace(line), -1)
			ranges, is := want[cells[0]]
			if !is || len(cells) != 8 {
				continue
			}
			shown++
			for i, at := range [...]int{1, 3, 4, 6, 7} { // the others are the name and the bars
				figure := 0.0
				if cells[at] != "-" {
					figure = amount(t, strings.TrimSuffix(strings.ReplaceAll(cells[at], " ", ""), "B"))
				}
				if figure < ranges[i][0] || figure > ranges[i][1] {
					return fmt.Errorf("koordctl top says %q of class %s, want %g to %g:\n%s", cells[at], cells[0], ranges[i][0], ranges[i][1], text)
				}
			}
		}
		if shown != len(want) {
			return fmt.Errorf("koordctl top shows %d classes, want %d:\n%s", shown, len(want), text)
		}
		return nil
	})
}

// What koordctl writes to a terminal when it begins, behind each picture and when it ends: the second screen and no cursor, what an older picture
// has left, and both back. https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
const (
	screenTaken, screenDrawn, screenLeft = "\x1b[?1049h\x1b[?25l", "\x1b[J", "\x1b[?25h\x1b[?1049l"
)

// topWatched: in a terminal koordctl top -w draws one picture over the other, each with the node and its classes, until Ctrl-C: then it gives the screen
// back and has not failed.
func (n *governed) topWatched(t *testing.T) {
	t.Helper()
	master, slave := terminal(t)
	cmd := exec.CommandContext(t.Context(), bin("koordctl"), "--run-dir", filepath.Join(n.dir, "run"), "top", "-w", "--interval", "500ms")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // what is typed there is for it
	err := cmd.Start()
	if err = errors.Join(err, slave.Close()); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		}
	})
	if err := master.SetReadDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var drawn strings.Builder
	for buffer := make([]byte, 4096); strings.Count(drawn.String(), screenDrawn) < 3; {
		got, err := master.Read(buffer)
		drawn.Write(buffer[:got])
		if err != nil {
			t.Fatalf("koordctl top -w: %v after %q", err, drawn.String())
		}
	}
	if _, err := master.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(master)
	if !errors.Is(err, unix.EIO) { // which is how the end of the last one in a terminal is told
		t.Fatalf("koordctl top -w goes on after Ctrl-C: %v, %q", err, rest)
	}
	ended = true
	if err := cmd.Wait(); err != nil {
		t.Errorf("koordctl top -w ended by Ctrl-C: %v", err)
	}
	if !strings.HasPrefix(drawn.String(), screenTaken) || !strings.Contains(string(rest), screenLeft) {
		t.Errorf("koordctl top -w does not take the screen and give it back: %q and at last %q", drawn.String(), rest)
	}
	for i, picture := range strings.SplitAfter(drawn.String(), screenDrawn)[:3] {
		for _, part := range []string{n.k.Node + ": koordlet ", "CLASS", "BE"} {
			if !strings.Contains(picture, part) {
				t.Errorf("picture %d of koordctl top -w does not show %q: %q", i+1, part, picture)
			}
		}
	}
}

// terminal opens a pseudo terminal, of which a program gets the slave: https://man7.org/linux/man-pages/man7/pty.7.html. Reads of the master
// may have a deadline.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("open a pseudo terminal: %v", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() {
		if err := master.Close(); err != nil {
			t.Error(err)
		}
	})
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0), unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 60, Col: 200})); err != nil {
		t.Fatalf("prepare a pseudo terminal: %v", err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}
