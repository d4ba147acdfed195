// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// The monitoring group of a pod that ended while we were away holds a number of the hardware: it goes when we are back, below whoever's
// group. That of a pod that lives stays, and so does what another tool counts.
func TestMonGroupsOfPodsThatHaveGone(t *testing.T) {
	t.Parallel()
	h, g := rdtHost(t, nil, checked, func(_ *host, o *engine.Options) {
		var records []journal.Record
		for _, pod := range []string{"gone", "kept"} {
			at := plan.Target{Level: plan.LevelContainer, Cgroup: "/kubepods/besteffort/pod" + pod + "/a", Pod: pod, Container: pod + "-a"}
			records = append(records,
				journal.Record{Target: at, Knob: plan.RDTClass.String(), Want: "BE", Via: journal.ViaRuntime},
				journal.Record{Target: at, Knob: plan.RDTMonGroup.String(), Want: pod, Via: journal.ViaDirect})
		}
		o.Past = engine.NewPast(records)
	})
	g.keepBE(t, h)
	_, err := g.EnsureGroup("BE") // somebody else's
	must(t, err)
	mons := filepath.Join(string(g.FS), "BE", "mon_groups")
	for _, name := range []string{"gone", "tool"} {
		must(t, os.Mkdir(filepath.Join(mons, name), 0o755))
	}
	h.run(t)
	sb := h.pod(t, "kept", "BE", nil)
	ctr := ctrOf(sb, "a")
	h.create(t, sb, ctr)
	must(t, os.Mkdir(filepath.Join(mons, "kept"), 0o755))
	must(t, os.WriteFile(filepath.Join(mons, "kept", "tasks"), nil, 0o600)) // which the kernel makes with the directory
	must(t, h.start(t, sb, ctr))
	enginetest.Eventually(t, "removal of the counters of the pod that has gone", func() bool {
		_, err := os.Stat(filepath.Join(mons, "gone"))
		return os.IsNotExist(err)
	})
	time.Sleep(300 * time.Millisecond) // six checks
	for _, name := range []string{"kept", "tool"} {
		if _, err := os.Stat(filepath.Join(mons, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
