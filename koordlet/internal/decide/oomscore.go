// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/memqos"
	"github.com/koord-rt/koord-rt/policy/oomscore"
)

// calmPercent of the node's memory may be in use where no eviction threshold says what is calm.
const calmPercent = unit.Percent(80)

// oomScoreInput is what the loop of OOM scores looks at: nobody but where tuning is asked for.
func oomScoreInput(f *Facts, a *accounts, pressure memqos.Pressure, m *memo) oomscore.Input {
	in := oomscore.Input{Now: f.Now, Capacity: f.View.MemCapacity, Least: f.View.Limits.OOMScoreAdjMin}
	if !f.Tune || f.View.Ceded.Has(plan.OOMScoreAdj) || f.View.Mode(protocol.FeatureOOMScore) != node.Active {
		return in
	}
	in.Containers = make([]oomscore.Container, 0, m.tunable)
	used := f.memory(sample.OfNode())
	in.Calm = pressure == memqos.Calm && used.OK && used.V <= calmPercent.Of(in.Capacity)
	for i := range a.pods {
		u := &a.pods[i]
		if u.class == protocol.QoSBE || !f.writes(u, protocol.FeatureOOMScore) {
			continue
		}
		for _, c := range u.member.Containers {
			base := container.BaseOOMScore(u.member.Pod, c)
			if !base.Set {
				continue
			}
			one := oomscore.Container{ID: c.ID, Pod: u.member.Pod.UID, Base: base.V, Max: m.memory(u.member.Pod, c).Max}
			if charged, reclaimable := f.charged(c.ID); charged.OK && reclaimable.OK {
				one.Used = unit.Got(charged.V - reclaimable.V)
			}
			in.Containers = append(in.Containers, one)
		}
	}
	m.tunable = len(in.Containers)
	return in
}

// oomScores are the loop's scores by container; nil for none.
func oomScores(list []oomscore.Score) map[string]node.OOMScore {
	if len(list) == 0 {
		return nil
	}
	out := make(map[string]node.OOMScore, len(list))
	for i := range list {
		out[list[i].Container] = node.OOMScore{Score: list[i].Value, Reason: list[i].Reason}
	}
	return out
}
