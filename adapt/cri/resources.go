// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Resources is a LinuxContainerResources as it came, in the units of CRI: µs, shares, bytes. Zero means not stated.
type Resources struct {
	Period, Quota, Shares int64
	// Memory is the limit, Swap that of memory and swap together.
	Memory, Swap int64
	OOMScoreAdj  int64
	CPUs, Mems   string
	Unified      map[string]string
	// Present tells an empty message from none.
	Present bool
}

// Base is the same in the model's words. A container's OOM score has no "not stated": runtimes set 0 as well.
func (r *Resources) Base() workload.Resources {
	out := r.limits()
	if r.Present {
		out.OOMScoreAdj = unit.Some(r.OOMScoreAdj)
	}
	return out
}

// limits is Base without the OOM score, which updates and pods do not have.
func (r *Resources) limits() workload.Resources {
	return workload.Resources{
		Shares: opt(r.Shares), Quota: opt(r.Quota), Period: opt(r.Period), MemoryLimit: opt(r.Memory),
		CPUs: r.CPUs, Mems: r.Mems, Unified: r.Unified,
	}
}

// scanResources reads a LinuxContainerResources; raw is nil when there is none.
func scanResources(raw []byte) (Resources, error) {
	r := Resources{Present: raw != nil}
	s := scanner{rest: raw}
	for s.next() {
		switch s.typ {
		case protowire.VarintType:
			r.setNumber(s.num, int64(s.number))
		case protowire.BytesType:
			if err := r.setText(s.num, s.value); err != nil {
				return r, err
			}
		}
	}
	return r, s.err
}

func (r *Resources) setNumber(num protowire.Number, n int64) {
	switch num {
	case fieldPeriod:
		r.Period = n
	case fieldQuota:
		r.Quota = n
	case fieldShares:
		r.Shares = n
	case fieldMemory:
		r.Memory = n
	case fieldOOMScore:
		r.OOMScoreAdj = n
	case fieldSwap:
		r.Swap = n
	}
}

func (r *Resources) setText(num protowire.Number, value []byte) (err error) {
	switch num {
	case fieldCPUs:
		r.CPUs = string(value)
	case fieldMems:
		r.Mems = string(value)
	case fieldUnified:
		r.Unified, err = putPair(r.Unified, value)
	}
	return err
}

// Pair is a key with its value: of a map, or a variable.
type Pair struct{ Key, Value string }

// ResourcesPatch is what to change in a LinuxContainerResources. What is not set stays as it is; a number set to 0 is
// taken out, which leaves the runtime's default (create) or what stands (update).
type ResourcesPatch struct {
	Period, Quota, Shares unit.Opt
	Memory, Swap          unit.Opt
	OOMScoreAdj           unit.Opt
	// CPUs and Mems are left alone when empty: CRI cannot clear a cpuset.
	CPUs, Mems string
	Unified    []Pair
}

// edits of a LinuxContainerResources.
func (p *ResourcesPatch) edits() []edit {
	var out []edit
	number := func(num protowire.Number, o unit.Opt) {
		if o.Set {
			out = append(grown(out), edit{num: num, verb: setNumber, number: o.V})
		}
	}
	text := func(num protowire.Number, s string) {
		if s != "" {
			out = append(grown(out), edit{num: num, verb: setText, text: s})
		}
	}
	number(fieldPeriod, p.Period)
	number(fieldQuota, p.Quota)
	number(fieldShares, p.Shares)
	number(fieldMemory, p.Memory)
	number(fieldOOMScore, p.OOMScoreAdj)
	text(fieldCPUs, p.CPUs)
	text(fieldMems, p.Mems)
	out = appendPairs(out, fieldUnified, p.Unified)
	number(fieldSwap, p.Swap)
	return out
}

// grown gives a list its place at once: most patches need one or two handfuls of edits.
func grown(list []edit) []edit {
	if list == nil {
		return make([]edit, 0, 12)
	}
	return list
}

// appendPairs adds an edit for each entry of a map or list of KeyValue: key = 1, value = 2.
func appendPairs(out []edit, num protowire.Number, pairs []Pair) []edit {
	if len(pairs) == 0 {
		return out
	}
	values := make([]edit, len(pairs))
	for i, kv := range pairs {
		values[i] = edit{num: 2, verb: setText, text: kv.Value}
		out = append(grown(out), edit{num: num, verb: setEntry, text: kv.Key, sub: values[i : i+1 : i+1]})
	}
	return out
}

// inside wraps edits into the embedded message that they are of; none stay none.
func inside(out []edit, num protowire.Number, sub []edit) []edit {
	if len(sub) == 0 {
		return out
	}
	return append(out, edit{num: num, verb: within, sub: sub})
}
