// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
	"github.com/koord-rt/koord-rt/test/lab/vmparts"
)

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	good := Options{Kernel: "6.12", Command: []string{"true"}}
	if _, err := good.withDefaults(); err != nil {
		t.Fatalf("good options: %v", err)
	}
	for name, change := range map[string]func(*Options){
		"no kernel":     func(o *Options) { o.Kernel = "" },
		"no command":    func(o *Options) { o.Command = nil },
		"flavour":       func(o *Options) { o.Flavour = "openrc" },
		"v1 on 6.12":    func(o *Options) { o.CgroupV1 = true },
		"relative file": func(o *Options) { o.Files = map[string]string{"/a": "a"} },
		"file as root":  func(o *Options) { o.Files = map[string]string{"/a": "/"} },
		"bare variable": func(o *Options) { o.Env = []string{"SECRET"} },
	} {
		o := good
		change(&o)
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: error repeats the entry: %v", name, err)
		}
	}
}

func TestGuestSeconds(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]int{5 * time.Minute: 270, 40 * time.Second: 20, time.Minute: 30} {
		if got := (Options{Timeout: timeout}).guestSeconds(); got != want {
			t.Errorf("%s: %d seconds, want %d", timeout, got, want)
		}
	}
}

func TestCPIO(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	c := newCPIO(&b)
	if err := c.add("ab", cpioFile, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := c.addDevice("dev/console", 5, 1); err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	zero := strings.Repeat("0", 8)
	one := "00000001"
	want := "070701" + one + "000081a4" + zero + zero + one + zero + "00000005" + zero + zero + zero + zero + "00000003" + zero +
		"ab\x00" + strings.Repeat("\x00", 3) + "hello\x00\x00\x00" +
		"070701" + "00000002" + "00002180" + zero + zero + one + zero + zero + zero + zero + "00000005" + one + "0000000c" + zero +
		"dev/console\x00" + "\x00\x00"
	if got := b.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if b.Len()%4 != 0 {
		t.Errorf("archive of %d bytes is not padded", b.Len())
	}
}

// stream writes a result the way a guest does.
func stream(t *testing.T, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		content := "content of " + name
		if name == guestcfg.ExitEntry {
			content = `{"Code":7}`
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(t.TempDir(), outFile)
	padded := append(b.Bytes(), make([]byte, 4096)...)
	if err := os.WriteFile(image, padded, 0o644); err != nil {
		t.Fatal(err)
	}
	return image
}

func TestUnpackResult(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exit, complete, err := unpackResult(stream(t, "stdout", "out/sub/file", guestcfg.ExitEntry), dir)
	if err != nil || !complete || exit.Code != 7 {
		t.Fatalf("got %+v, %v, %v", exit, complete, err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "out/sub/file"))
	if err != nil || string(got) != "content of out/sub/file" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestUnpackIncompleteResult(t *testing.T) {
	t.Parallel()
	for name, image := range map[string]string{"nothing written": stream(t), "no exit": stream(t, "stdout")} {
		if _, complete, err := unpackResult(image, t.TempDir()); complete || err != nil {
			t.Errorf("%s: complete %v, %v", name, complete, err)
		}
	}
}

func TestUnpackStaysInside(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "inner")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := unpackResult(stream(t, "../escaped", guestcfg.ExitEntry), dir); err == nil {
		t.Error("a name outside the folder was accepted")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "escaped")); err == nil {
		t.Error("a file was written outside the folder")
	}
}

func TestStageTree(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "stage")
	if err := os.WriteFile(filepath.Join(from, "a"), []byte("four"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	n, err := stageTree(from, to)
	if err != nil || n != 4 {
		t.Fatalf("got %d, %v", n, err)
	}
	if link, err := os.Readlink(filepath.Join(to, "link")); err != nil || link != "a" {
		t.Errorf("link: %q, %v", link, err)
	}
	if info, err := os.Stat(filepath.Join(to, "a")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("mode: %v, %v", info, err)
	}
}

func TestTailBuffer(t *testing.T) {
	t.Parallel()
	b := &tailBuffer{limit: 4}
	for _, s := range []string{"abc", "def", "g"} {
		if n, err := b.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
	if b.String() != "defg" {
		t.Errorf("got %q", b.String())
	}
}

// TestRunTellsWhetherTheCommandBegan stands a script where the emulator is: a guest is booted again only where nothing of the
// caller's has run.
func TestRunTellsWhetherTheCommandBegan(t *testing.T) {
	t.Parallel()
	const hangs = "; exec sleep 60"
	for name, c := range map[string]struct {
		script         string
		limit, timeout time.Duration
		notBegun       bool
	}{
		"hangs before": {"echo booting" + hangs, 100 * time.Millisecond, time.Second, true},
		"ends before":  {"echo booting", time.Minute, time.Second, true},
		"ends after":   {"printf 'booting\nkoord-vm: the '; sleep 0.1; printf 'command begins\nnow'", time.Minute, time.Minute, false},
		// The command's time begins where the boot's ends: one guest boots for longer than the command may take, the other's boot may
		// not take as long as that.
		"hangs after, longer boot":  {"sleep 2; echo " + guestcfg.Begins + hangs, time.Minute, time.Second, false},
		"hangs after, shorter boot": {"echo " + guestcfg.Begins + hangs, 20 * time.Second, 22 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			if err := makeSparse(filepath.Join(work, outFile), 1); err != nil {
				t.Fatal(err)
			}
			m := machine{emulator: vmparts.Emulator{Command: []string{"sh", "-c", c.script}}}
			o := Options{OutputDir: t.TempDir(), Timeout: c.timeout, Console: io.Discard}
			start := time.Now()
			_, _, err := m.run(t.Context(), work, o, c.limit)
			if hung := strings.HasSuffix(c.script, hangs); hung && !strings.Contains(fmt.Sprint(err), " passed: ") {
				t.Errorf("it was not ended: %v", err)
			} else if took := time.Since(start); hung && !c.notBegun && took < c.timeout {
				t.Errorf("ended after %s, its command may take %s", took, c.timeout)
			}
			if !errors.Is(err, ErrIncomplete) || errors.Is(err, errNotBegun) != c.notBegun || emulators(err) != c.notBegun {
				t.Errorf("got %v, want ErrIncomplete, and that its command did not begin: %v", err, c.notBegun)
			}
		})
	}
}

// TestRunEndsWithoutATimer: a guest whose kernel says three times that a CPU's timer does not fire is ended, and is one to be booted again;
// one that says so while the host was busy goes on.
func TestRunEndsWithoutATimer(t *testing.T) {
	t.Parallel()
	const says = "echo '[   23.7] rcu: Possible timer handling issue on cpu=3 timer-softirq=6'; "
	for script, stalled := range map[string]bool{
		"echo " + guestcfg.Begins + "; " + says + says + says + "exec sleep 60": true,
		"echo " + guestcfg.Begins + "; " + says + says + "exec sleep 1":         false,
	} {
		work := t.TempDir()
		if err := makeSparse(filepath.Join(work, outFile), 1); err != nil {
			t.Fatal(err)
		}
		m := machine{emulator: vmparts.Emulator{Command: []string{"sh", "-c", script}}}
		begun := time.Now()
		_, _, err := m.run(t.Context(), work, Options{OutputDir: t.TempDir(), Timeout: time.Minute, Console: io.Discard}, time.Minute)
		if errors.Is(err, errNoTimer) != stalled || emulators(err) != stalled || !errors.Is(err, ErrIncomplete) || errors.Is(err, errNotBegun) || time.Since(begun) > 50*time.Second {
			t.Errorf("%s: after %s %v, want that it has no timer: %v", script, time.Since(begun), err, stalled)
		}
	}
}

// TestRunTellsThatTheEmulatorAborted: a guest is booted again, however far it had come, where the emulator ended itself at an assertion, and
// not where somebody else killed it.
func TestRunTellsThatTheEmulatorAborted(t *testing.T) {
	t.Parallel()
	for script, wanted := range map[string]bool{
		"echo " + guestcfg.Begins + "; echo 'Assertion failed.' >&2; kill -ABRT $$": true,
		"echo " + guestcfg.Begins + "; kill -KILL $$":                               false,
		"echo " + guestcfg.Begins + "; exit 134":                                    false,
	} {
		work := t.TempDir()
		if err := makeSparse(filepath.Join(work, outFile), 1); err != nil {
			t.Fatal(err)
		}
		m := machine{emulator: vmparts.Emulator{Command: []string{"sh", "-c", script}}}
		_, _, err := m.run(t.Context(), work, Options{OutputDir: t.TempDir(), Timeout: time.Minute, Console: io.Discard}, time.Minute)
		if err == nil || errors.Is(err, errAborted) != wanted || emulators(err) != wanted || wanted != strings.Contains(err.Error(), "Assertion failed.") {
			t.Errorf("%s: %v, want that it aborted: %v", script, err, wanted)
		}
	}
}

func TestPanicLine(t *testing.T) {
	t.Parallel()
	console := "[    4.1] systemd[1]: Failed to find module\r\n[    4.2] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\r\n[    4.3] CPU: 1\r\n"
	if got, want := panicLine(console), "Attempted to kill init! exitcode=0x0000000b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestCarry: what the lab has becomes a guest's, under the names by which parts are found there.
func TestCarry(t *testing.T) {
	t.Setenv("KOORD_RT_PARTS", "runc=/parts/runc-1.3 crictl=/parts/crictl-1.36")
	cache, err := parts.Open(parts.Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"/own": "/disk/own"}
	given, err := Carry(t.Context(), cache, files, parts.Runc, parts.Crictl)
	if err != nil {
		t.Fatal(err)
	}
	if files["/parts/runc-1.3"] != "/disk/cache/runc-1.3" || files["/parts/crictl-1.36"] != "/disk/cache/crictl-1.36" || len(files) != 3 {
		t.Errorf("files %v", files)
	}
	t.Setenv("KOORD_RT_PARTS", given)
	inside, err := parts.Open(parts.Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := inside.Get(t.Context(), parts.Crictl); err != nil || dir != "/disk/cache/crictl-1.36" {
		t.Errorf("in the guest crictl lies in %s, %v", dir, err)
	}
	if _, err := Carry(t.Context(), cache, files, "no-such-part"); err == nil {
		t.Error("a part that nobody has was carried")
	}
}
