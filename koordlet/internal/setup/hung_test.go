// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/policy/policytest"
)

// A step that hangs, here in a file that nobody answers for: half a minute later nothing is reported, and NodeSLO.status says since when nothing
// is decided. Once it goes on all is as before.
func TestLoopsThatHang(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cpu_manager_state")
	d, api := whole(t, func(cfg *config.Koordlet) { cfg.Host.KubeletCPUManagerState = path })
	enginetest.Eventually(t, "NodeSLO.status", func() bool { return tells(api)["nodeslos"] > 0 })
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	release := sync.OnceFunc(func() {
		answers, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
			return
		}
		if err := errors.Join(os.Remove(path), answers.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	var last *agent.Look
	enginetest.Eventually(t, "a step that hangs", func() bool {
		last = d.agent.Look()
		return time.Since(last.Wall) > 4*time.Second && d.agent.Hung(time.Now().Add(time.Minute)) != nil
	})
	var f report.InForce
	stands := func(at time.Time) bool {
		var ok bool
		f, ok = d.standing(at, &takeover{}, &applied{})
		return ok
	}
	now := time.Now()
	if _, ok := d.measuredAt(now); !ok {
		t.Error("nothing is reported a few seconds after the last step")
	}
	if !stands(now) || f.Problem != "" {
		t.Errorf("a few seconds after the last step: %+v", f)
	}
	if _, ok := d.measuredAt(now.Add(time.Minute)); ok {
		t.Error("it is reported as measured what nobody has measured")
	}
	if !stands(now.Add(time.Minute)) || f.Pending || !strings.Contains(f.Problem, "have not gone on since") {
		t.Errorf("a minute later: %+v", f)
	}
	for _, s := range f.Features {
		if s.Feature == "interference" && (s.State != status.StateDegraded || !strings.Contains(s.Detail, "have not gone on since")) {
			t.Errorf("%+v", s)
		}
	}
	release()
	enginetest.Eventually(t, "the loops go on", func() bool { return d.agent.Look() != last })
	if _, ok := d.measuredAt(time.Now()); !ok || !stands(time.Now()) || f.Problem != "" {
		t.Errorf("when they go on: %v, %+v", ok, f)
	}
}

// While the dynamic state cannot be written, and while the loops hang, no loop is active: not for people, and not for the cluster.
func TestLoopsThatDoNotReachThePods(t *testing.T) {
	t.Parallel()
	cfg := config.DefaultKoordlet()
	cfg.Evict.Mode = config.ModeActive
	v := policytest.YAML(t, policytest.View(), "{resourceUsedThresholdWithBE: {enable: true}, cpuBurstStrategy: {policy: auto}}")
	full, stuck := errors.New("write dynamic.json: no space left on device"), errors.New("the loops have not gone on")
	reach := []string{"cpu-suppress", "cfs-quota-burst", "memory-reclaim", "interference"}
	for name, c := range map[string]struct {
		withheld, hung error
		degraded       []string
	}{
		"all is well": {}, "full": {withheld: full, degraded: reach}, "hung": {hung: stuck, degraded: append([]string{"eviction"}, reach...)},
		"both": {withheld: full, hung: stuck, degraded: append([]string{"eviction"}, reach...)},
	} {
		l := &agent.Look{Wall: time.Unix(0, 0), Facts: decide.Facts{View: v}, Withheld: c.withheld}
		for _, s := range loopsInForce(&cfg, v, l, "", false, c.hung) {
			bad := slices.Contains(c.degraded, s.Feature)
			if (s.State == status.StateDegraded) != bad || c.hung != nil && bad && !strings.Contains(s.Detail, stuck.Error()) ||
				c.withheld != nil && bad && s.Feature != "eviction" && !strings.Contains(s.Detail, full.Error()) {
				t.Errorf("%s: %+v", name, s)
			}
		}
		rows := halted(loops(&cfg, true, "", l), c.hung, time.Unix(9, 0))
		for _, row := range rows[:4] {
			if (row.State == status.StateDegraded) != (c.degraded != nil) || c.withheld != nil && !strings.Contains(row.Err, full.Error()) {
				t.Errorf("%s: %+v", name, row)
			}
		}
		if row := rows[len(rows)-1]; (row.Name == "loops") != (c.hung != nil) || c.hung != nil && row.Err != stuck.Error() {
			t.Errorf("%s: %+v", name, row)
		}
		for _, row := range rows {
			if c.hung != nil && row.State == status.StateActive {
				t.Errorf("%s, and it goes on: %+v", name, row)
			}
		}
	}
}
