// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
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
