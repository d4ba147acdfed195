// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/proc"
)

const (
	unified  = "36 31 0:33 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	separate = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n"
	hybrid   = separate + "36 31 0:33 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n"
	without  = "ffffffff821f7c80 T schedule\n"
	grouped  = without + "ffffffff813c4280 T sched_rt_can_attach\n"
)

// A process in real time keeps the cpu controller of cgroup v2 off where the kernel shares out real time by cgroup: there, and where that is not
// known, nobody is in real time. What is asked for and refused is told with the reason.
func TestHinders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ mounts, symbols, want string }{
		"v2":                         {unified, without, ""},
		"v2, groups":                 {unified, grouped, "CONFIG_RT_GROUP_SCHED"},
		"v2, functions not shown":    {unified, "", "kallsyms"},
		"v1":                         {separate, grouped, ""},
		"v1, functions not shown":    {separate, "", ""},
		"cpu is v1, the rest is not": {hybrid, grouped, ""},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "self"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "self", "mountinfo"), c.mounts)
		write(t, filepath.Join(dir, "kallsyms"), c.symbols)
		got := hinders(proc.FS(dir))
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if c.want == "" {
			continue // to enter would change this process
		}
		s := newScheduling(slog.New(slog.DiscardHandler))
		s.enter(true, proc.FS(dir))
		if told := s.String(); !strings.HasPrefix(told, instead) || !strings.Contains(told, c.want) {
			t.Errorf("%s: told %q", name, told)
		}
		s.enter(false, proc.FS(dir))
		if told := s.String(); told != instead+status.RealTimeOff {
			t.Errorf("%s, not wanted: told %q", name, told)
		}
	}
	if got := hinders(proc.FS(t.TempDir())); !strings.Contains(got, "mountinfo") {
		t.Errorf("without mounts: %q", got)
	}
}
