// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/proc"
)

// crowded is a machine on which BE is kept to 30 % of the cache and no number is left for another group; nothing counts there.
func crowded(t *testing.T, past *host) (*host, fakeGroups) {
	t.Helper()
	h, g := rdtHost(t, past, func(h *host, o *engine.Options) {
		checked(h, o)
		o.Live = &engine.Live{Resctrl: h.tree.Roots.Resctrl}
	})
	s := h.machine.Static(t, hostKnobs()...)
	var err error
	s.Kernel.RDT, err = g.Info(nil)
	must(t, err)
	s.Kernel.RDT.Mounted, s.Kernel.RDT.Mon = true, false
	h.views.SetStatic(s)
	g.keepBE(t, h)
	g.full.Store(true)
	return h, g
}

// keepBE enables the group of BE, with 30 % of the cache.
func (fakeGroups) keepBE(t *testing.T, h *host) {
	t.Helper()
	spec, err := strategy.Parse([]byte("resourceQOSStrategy: {beClass: {resctrlQOS: {enable: true, catRangeEndPercent: 30}}}"))
	must(t, err)
	h.views.SetFile(&spec, "test")
}

func (g fakeGroups) tasksOf(t testing.TB, name string) []int {
	t.Helper()
	pids, err := proc.ReadPIDs(filepath.Join(string(g.FS), name, "tasks"))
	if !errors.Is(err, fs.ErrNotExist) { // the fake's files come a moment after the directory
		must(t, err)
	}
	return pids
}

// started is a container with one process, which the runtime has put into the group that it was told.
func (g fakeGroups) started(t testing.TB, h *host, sb *api.PodSandbox, name string, pid int) (class string, err error) {
	t.Helper()
	ctr := ctrOf(sb, name)
	class = h.create(t, sb, ctr).GetLinux().GetResources().GetRdtClass().GetValue()
	ctr.Pid = uint32(pid)
	h.tree.SetProcs(t, ctr.Linux.CgroupsPath, pid)
	must(t, os.MkdirAll(filepath.Join(h.tree.Roots.Proc, strconv.Itoa(pid), "task", strconv.Itoa(pid)), 0o755))
	if class != "" {
		must(t, g.MoveTasks(class, pid))
	}
	return class, h.start(t, sb, ctr)
}

// A BE pod for whose own group no number is left is kept to its class's part from the creation on, and stays there over the checks until one
// is free; then it has its own. One that requires the feature does not start.
func TestPodGroupThatCannotBeMade(t *testing.T) {
	t.Parallel()
	h, g := crowded(t, nil)
	h.run(t)
	enginetest.Eventually(t, "group of BE", func() bool { return strings.Contains(g.schemata("BE"), "L3:0=3f;1=3f") })
	sb := h.pod(t, "be", "BE", map[string]string{protocol.AnnotationResctrl: resctrlAsk})
	class, err := g.started(t, h, sb, "a", 100)
	must(t, err)
	if class != "BE" {
		t.Errorf("created in the group %q, want its class's", class)
	}
	time.Sleep(300 * time.Millisecond) // six checks
	if got := g.tasksOf(t, "BE"); !slices.Equal(got, []int{100}) {
		t.Errorf("written to BE's tasks: %v, want the process once", got)
	}
	strict := h.pod(t, "strict", "BE", map[string]string{protocol.AnnotationResctrl: resctrlAsk, protocol.AnnotationRequired: "llc"})
	if _, err := g.started(t, h, strict, "a", 300); err == nil || !strings.Contains(err.Error(), "no resctrl group of its own") {
		t.Errorf("a pod that requires its group starts without: %v", err)
	}
	g.full.Store(false)
	enginetest.Eventually(t, "move to the pod's own group", func() bool { return g.has("koordlet-be") && slices.Contains(g.tasksOf(t, "koordlet-be"), 100) })
	if class, err := g.started(t, h, sb, "b", 200); err != nil || class != "koordlet-be" {
		t.Errorf("the next container is in %q (%v), want the pod's own", class, err)
	}
	time.Sleep(300 * time.Millisecond)
	if be, own := g.tasksOf(t, "BE"), g.tasksOf(t, "koordlet-be"); !slices.Equal(be, []int{100, 300}) || !slices.Equal(own, []int{100, 200}) {
		t.Errorf("in BE %v (with the refused one), in the pod's own %v: moved to and fro", be, own)
	}
}

// The same after a restart: a pod that is found without its group is in its class's, new containers too.
func TestPodFoundWithoutItsGroup(t *testing.T) {
	t.Parallel()
	h, g := crowded(t, nil)
	h.rt = newRuntime(t, h.socket)
	sb := h.sandbox(t, "be", "BE", map[string]string{protocol.AnnotationResctrl: resctrlAsk})
	h.rt.add(sb)
	h.run(t)
	enginetest.Eventually(t, "group of BE", func() bool { return strings.Contains(g.schemata("BE"), "L3:0=3f;1=3f") })
	if class, err := g.started(t, h, sb, "a", 100); err != nil || class != "BE" {
		t.Errorf("created in %q (%v), want the class's group", class, err)
	}
}

// A node that can give nothing of what the annotation names makes no group for it: the class's holds.
func TestPodGroupOfNothing(t *testing.T) {
	t.Parallel()
	h, g := crowded(t, nil)
	g.full.Store(false)
	h.run(t)
	enginetest.Eventually(t, "group of BE", func() bool { return strings.Contains(g.schemata("BE"), "L3:0=3f;1=3f") })
	sb := h.pod(t, "be", "BE", map[string]string{protocol.AnnotationResctrl: `{"llc":{"schemataPerCache":[{"cacheID":9,"range":[0,50]}]}}`})
	if class, err := g.started(t, h, sb, "a", 100); err != nil || class != "BE" {
		t.Errorf("created in %q (%v), want the class's group", class, err)
	}
	if g.has("koordlet-be") {
		t.Error("a group was made without a line")
	}
}
