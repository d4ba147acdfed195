// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// stateField is the state in /proc/PID/stat.
var stateField = regexp.MustCompile(`\) [A-Za-z] `)

// stopped makes the machine's /proc show this test's process as stopped.
func (h *host) stopped(t *testing.T) {
	t.Helper()
	path := filepath.Join(h.dir, "proc", strconv.Itoa(os.Getpid()), "stat")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, stateField.ReplaceAll(text, []byte(") T ")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A daemon that lives and does not work has a file that says "connected". Each of them is a failed check with the cause and
// the next step, and so it stands beside what features and explain know without it.
func TestSilentDaemons(t *testing.T) {
	t.Parallel()
	for _, d := range daemons() {
		for name, c := range map[string]struct {
			age  time.Duration
			stop bool
			want []string
		}{
			"stopped": {0, true, []string{"is stopped by a signal", d.missed, "kill -CONT PID", "systemctl restart " + d.program}},
			"hangs":   {2 * silence, false, []string{"no status for 1m", d.missed, "systemctl thaw " + d.program, "systemctl restart " + d.program}},
			"late":    {silence / 2, false, nil},
		} {
			h := colocated(t, "6.12")
			s := healthy()
			s.Program, s.ProgramVersion = d.program, d.program+" v0.1.0 (abc)"
			s.Written, s.Up = time.Now().Add(-c.age), boottime.Now()-c.age
			h.aliveAs(t, d.writer, s)
			if c.stop {
				h.stopped(t)
			}
			for _, args := range [][]string{{"doctor"}, {"features"}, {"features", "-o", "json"}, {"explain", "default/web"}, {"explain", "default/web", "-o", "json"}} {
				out, err := h.run(t, args...)
				out = withPID(out)
				if c.want == nil {
					if strings.Contains(out, d.missed) || args[0] != "doctor" && err != nil {
						t.Errorf("%s of %s that is %s old: %v\n%s", args, d.program, c.age, err, out)
					}
					continue
				}
				if !errors.Is(err, ErrFound) {
					t.Errorf("%s of %s that %s: %v", args, d.program, name, err)
				}
				for _, w := range c.want {
					if !strings.Contains(out, w) {
						t.Errorf("%s of %s that %s does not say %q:\n%s", args, d.program, name, w, out)
					}
				}
				if args[0] == "doctor" && !regexp.MustCompile(`(?m)^FAIL +`+d.check+` `).MatchString(out) {
					t.Errorf("%s that %s passes the check:\n%s", d.program, name, out)
				}
			}
		}
	}
}

// A daemon that has ended is not one that hangs, however old its file is.
func TestDeadIsNotSilent(t *testing.T) {
	t.Parallel()
	e := &env{}
	if what := e.halted(&status.Entry{Stopped: true}); what != "" {
		t.Error(what)
	}
}
