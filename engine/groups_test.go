// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/workload"
)

// making keeps which groups it was asked to make.
type making struct {
	books
	made []string
}

// EnsureGroup implements Groups.
func (m *making) EnsureGroup(name string) (bool, error) {
	m.made = append(m.made, name)
	return true, nil
}

// A class's group is made by who will remove it: beside another writer by that one, alone by us.
func TestGroupsAreMadeByWhoRemovesThem(t *testing.T) {
	t.Parallel()
	spec, err := strategy.Parse([]byte("resourceQOSStrategy: {beClass: {resctrlQOS: {enable: true}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	g, _ := bursting(t)
	static := Static{Name: "n", Kernel: node.Kernel{Major: 6, Minor: 12, Cgroup: node.CgroupV2, RDT: node.RDT{
		Mounted: true, L3: true, L3CBM: 0xfffff, L3MinBits: 1, L3IDs: []int{0}, Closids: 16,
	}}}
	v := NewViews(config.Default().Node, static, &spec, "test").Load()
	groups, beside := &making{}, true
	g.o.Groups, g.o.Beside = groups, func() bool { return beside }
	for _, c := range []struct {
		beside bool
		made   []string
	}{{true, nil}, {false, []string{"BE"}}, {true, nil}} {
		groups.made, beside = nil, c.beside
		if g.repairGroups(t.Context(), v); !slices.Equal(groups.made, c.made) {
			t.Errorf("beside another writer %t: made %q, want %q", c.beside, groups.made, c.made)
		}
	}
}

// The groups of a writer that has gone are ours to remove, as they would be in our next life; what we know of our own stays known.
func TestLearnedGroupsAreSwept(t *testing.T) {
	t.Parallel()
	g, _ := bursting(t)
	k := &books{}
	g.o.Kernel, g.o.Groups = k, k
	g.stats.lastSync.Store(1)
	g.groups.ours["ours"] = false
	v := g.views.Load()
	g.sweepGroups(v)
	made := func(name string) journal.Record {
		return journal.Record{Target: groupTarget(name), Via: journal.ViaMade}
	}
	g.Learn(NewPast([]journal.Record{made("BE"), made("ours"), made("gone"), {Target: groupTarget("gone"), Via: journal.ViaGone}}))
	for _, want := range [][]string{{"removed ours", "ours"}, {"removed BE", "BE"}, nil} {
		k.ended = nil
		if g.sweepGroups(v); !slices.Equal(k.ended, want) {
			t.Errorf("ended %q, want %q", k.ended, want)
		}
	}
}

// Beside another writer, who makes the pods' groups, a pod is decided by whether its own is there; what was decided otherwise is decided
// anew.
func TestOwnGroupOfAnotherWriter(t *testing.T) {
	t.Parallel()
	g, _ := bursting(t)
	spec, err := strategy.Parse([]byte("resourceQOSStrategy: {lsrClass: {resctrlQOS: {enable: true}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	static := Static{Name: "n", Topology: &topo.Topology{}, Kernel: node.Kernel{Major: 6, Minor: 12, Cgroup: node.CgroupV2, RDT: node.RDT{
		Mounted: true, L3: true, L3CBM: 0xfffff, L3MinBits: 1, L3IDs: []int{0}, Closids: 16,
	}}}
	v := NewViews(config.Default().Node, static, &spec, "test").Load()
	root := t.TempDir()
	g.o.Groups, g.o.Beside, g.o.Live = &making{}, func() bool { return true }, &Live{Resctrl: root}
	pod := lsr("one")
	pod.Ask.Resctrl = &protocol.Resctrl{LLC: &protocol.Range{Start: 0, End: 50}}
	g.reg.putPod(newPodEntry(pod))
	c := &workload.Container{ID: "c1", Name: "app", State: workload.StateRunning, Cgroup: pod.Cgroup + "/c1"}
	own := "koordlet-" + pod.UID
	for _, there := range []bool{false, true, false} {
		dir := filepath.Join(root, own)
		if there {
			err = errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "schemata"), nil, 0o600))
		} else {
			err = os.RemoveAll(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.repairGroups(t.Context(), v)
		if e, ok := g.reg.container(c.ID); ok && e.gen != undecided {
			t.Errorf("own group there %t: the container keeps what was decided", there)
		}
		want := "LSR"
		if there {
			want = own
		}
		pl := g.decide(v, pod, c)
		if s := pl.Get(plan.RDTClass); s == nil || s.Value.String() != want {
			t.Errorf("own group there %t: %v, want %s", there, s, want)
		}
		g.reg.addContainer(entry{c: c, sandbox: pod.ID, plan: pl, gen: 7})
		g.reg.changeContainer(c.ID, func(e *entry) { e.plan, e.gen = pl, 7 })
		g.repairGroups(t.Context(), v)
		if e, _ := g.reg.container(c.ID); e.gen != 7 {
			t.Error("decided anew although nothing has changed")
		}
	}
}
