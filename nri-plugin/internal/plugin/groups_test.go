// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	kernelwire "github.com/koord-rt/koord-rt/kernel/wire"
)

// fakeGroups gives a new group its files and takes them away with it, as the kernel does.
type fakeGroups struct {
	resctrl.FS
	t    testing.TB
	tree *kerneltest.Tree
	mons chan string  // monitoring groups that were removed
	full *atomic.Bool // no number of the hardware is left for a pod's group
}

func (g fakeGroups) EnsureGroup(name string) (bool, error) {
	if g.full.Load() && strings.HasPrefix(name, "koordlet-") && !g.has(name) {
		return false, unix.ENOSPC
	}
	created, err := g.FS.EnsureGroup(name)
	if created {
		g.tree.Group(g.t, name)
	}
	return created, err
}

func (g fakeGroups) RemoveGroup(name string) error { return os.RemoveAll(string(g.FS) + "/" + name) }

func (g fakeGroups) RemoveMon(group, mon string) error {
	g.mons <- group + "/" + mon
	return os.RemoveAll(filepath.Join(string(g.FS), group, "mon_groups", mon))
}

func (g fakeGroups) has(name string) bool {
	_, err := os.Stat(string(g.FS) + "/" + name)
	return err == nil
}

func (g fakeGroups) schemata(name string) string {
	data, err := os.ReadFile(string(g.FS) + "/" + name + "/schemata")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// rdtHost is a machine with resctrl; past is the machine of an earlier life, whose ledger is read, or nil.
func rdtHost(t *testing.T, past *host, change ...func(*host, *engine.Options)) (*host, fakeGroups) {
	t.Helper()
	var g fakeGroups
	h := newHostWith(t, "6.12", nil, append(change, func(h *host, o *engine.Options) {
		h.tree.Resctrl(t, true, true)
		rdt := resctrl.FS(h.tree.Roots.Resctrl)
		g = fakeGroups{FS: rdt, t: t, tree: h.tree, mons: make(chan string, 16), full: new(atomic.Bool)}
		o.Kernel = h.machine.Writer(t, func(a *apply.Options) {
			a.Groups = kernelwire.Groups{FS: rdt, Proc: proc.FS(h.tree.Roots.Proc)}
		})
		o.Groups = g
		if past != nil {
			o.Past = engine.NewPast(past.journal.All())
		}
		s := h.machine.Static(t, hostKnobs()...)
		var err error
		s.Kernel.RDT, err = rdt.Info(nil)
		must(t, err)
		s.Kernel.RDT.Mounted = true
		h.views.SetStatic(s)
	})...)
	return h, g
}

const resctrlAsk = `{"llc":{"schemata":{"range":[0,30]}}}`

// The groups of pods live as long as their pods, whoever was away when: after kill -9 the group of a pod that has gone
// is removed, that of a pod that stayed is repaired and goes with it, and a pod that came meanwhile gets one. A group
// that the ledger does not show as ours is left alone.
func TestPodGroupsOutliveUs(t *testing.T) {
	t.Parallel()
	annotations := map[string]string{protocol.AnnotationResctrl: resctrlAsk}
	first, had := rdtHost(t, nil)
	first.run(t)
	first.pod(t, "gone", "LS", annotations)
	first.pod(t, "kept", "LS", annotations)
	enginetest.Eventually(t, "schemata", func() bool { return strings.Contains(had.schemata("koordlet-kept"), "L3:0=3f;1=3f") })

	h, g := rdtHost(t, first, checked)
	for _, name := range []string{"koordlet-gone", "koordlet-kept", "koordlet-strange"} {
		_, err := g.EnsureGroup(name)
		must(t, err)
	}
	h.rt = newRuntime(t, h.socket)
	kept := h.sandbox(t, "kept", "LS", annotations)
	h.rt.add(kept)
	h.rt.add(h.sandbox(t, "late", "LS", annotations))
	h.run(t)
	for _, name := range []string{"koordlet-kept", "koordlet-late"} {
		enginetest.Eventually(t, "schemata of "+name, func() bool { return strings.Contains(g.schemata(name), "L3:0=3f;1=3f") })
	}
	enginetest.Eventually(t, "removal of the group whose pod has gone", func() bool { return !g.has("koordlet-gone") })
	must(t, os.WriteFile(string(g.FS)+"/koordlet-late/schemata", []byte("L3:0=fffff;1=fffff\nMB:0=100;1=100\n"), 0o600))
	enginetest.Eventually(t, "repair of drift", func() bool { return strings.Contains(g.schemata("koordlet-late"), "L3:0=3f;1=3f") })
	if !g.has("koordlet-kept") || !g.has("koordlet-strange") {
		t.Error("a group of a pod that lives, or one that is not ours, was removed")
	}
	must(t, h.rt.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: kept}))
	must(t, h.rt.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{Pod: kept}))
	enginetest.Eventually(t, "removal with its pod", func() bool { return !g.has("koordlet-kept") })
}

// Groups of classes that are switched off go when nobody uses them any more, those that we made.
func TestClassGroupsSwitchedOff(t *testing.T) {
	t.Parallel()
	h, g := rdtHost(t, nil, checked)
	_, err := g.EnsureGroup("LS") // somebody else's
	must(t, err)
	spec, err := strategy.Parse([]byte("resourceQOSStrategy: {lsClass: {resctrlQOS: {enable: true}}, beClass: {resctrlQOS: {enable: true, catRangeEndPercent: 30}}}"))
	must(t, err)
	h.views.SetFile(&spec, "test")
	h.run(t)
	enginetest.Eventually(t, "group of BE", func() bool { return strings.Contains(g.schemata("BE"), "L3:0=3f;1=3f") })
	h.views.SetFile(nil, "")
	enginetest.Eventually(t, "removal of the group of BE", func() bool { return !g.has("BE") })
	if !g.has("LS") {
		t.Error("a group that we did not make was removed")
	}
}

// From a creation to the tasks: the runtime puts the process into the group of its class, and when the start is answered all its threads are
// below that, in the monitoring group of its pod, where those of the pod's other container stay. No machine of the lab counts.
func TestMonGroupHasThePodsTasks(t *testing.T) {
	t.Parallel()
	h, g := rdtHost(t, nil)
	spec, err := strategy.Parse([]byte("resourceQOSStrategy: {beClass: {resctrlQOS: {enable: true, catRangeEndPercent: 30}}}"))
	must(t, err)
	h.views.SetFile(&spec, "test")
	h.run(t)
	enginetest.Eventually(t, "group of BE", func() bool { return strings.Contains(g.schemata("BE"), "L3:0=3f;1=3f") })
	sb := h.pod(t, "be", "BE", nil)
	class := filepath.Join(string(g.FS), "BE")
	mon := filepath.Join(class, "mon_groups", sb.Uid)
	must(t, os.Mkdir(mon, 0o755))
	must(t, os.WriteFile(filepath.Join(mon, "tasks"), nil, 0o600)) // which the kernel makes with the directory
	var want []int
	for name, pid := range map[string]int{"a": 100, "b": 200} {
		ctr := ctrOf(sb, name)
		adj := h.create(t, sb, ctr)
		if got := adj.GetLinux().GetResources().GetRdtClass().GetValue(); got != "BE" {
			t.Fatalf("the runtime is asked for the class %q", got)
		}
		ctr.Pid = uint32(pid)
		h.tree.SetProcs(t, ctr.Linux.CgroupsPath, pid)
		for _, tid := range []int{pid, pid + 7} {
			must(t, os.MkdirAll(filepath.Join(h.tree.Roots.Proc, strconv.Itoa(pid), "task", strconv.Itoa(tid)), 0o755))
			must(t, g.MoveTasks("BE", tid)) // as runc does
			want = append(want, tid)
		}
		must(t, h.start(t, sb, ctr))
		slices.Sort(want)
		for _, dir := range []string{class, mon} {
			got, err := proc.ReadPIDs(filepath.Join(dir, "tasks"))
			must(t, err)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("after the start of %s the tasks of %s are %v, want %v", name, dir, got, want)
			}
		}
	}
	if left, err := os.ReadDir(filepath.Join(string(g.FS), "mon_groups")); err != nil || len(left) > 0 {
		t.Errorf("monitoring groups of nobody's class: %v, %v", left, err)
	}
}

// A monitoring group goes when its class is switched off, once for all containers of its pod, and so does their place in
// the class's group.
func TestMonGroupSwitchedOff(t *testing.T) {
	t.Parallel()
	h, g := rdtHost(t, nil, checked)
	spec, err := strategy.Parse([]byte("resourceQOSStrategy: {beClass: {resctrlQOS: {enable: true, catRangeEndPercent: 30}}}"))
	must(t, err)
	h.views.SetFile(&spec, "test")
	h.run(t)
	sb := h.pod(t, "be", "BE", nil)
	for _, name := range []string{"a", "b"} {
		ctr := ctrOf(sb, name)
		h.create(t, sb, ctr)
		must(t, h.start(t, sb, ctr))
	}
	h.views.SetFile(nil, "")
	if got := <-g.mons; got != "BE/be" {
		t.Errorf("removed %q, want the pod's in the group of BE", got)
	}
	enginetest.Eventually(t, "removal of the group of BE", func() bool { return !g.has("BE") })
}
