// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// oomScore plans oom_score_adj: the container's entry of oom-score-adj-spec, else the pod's oom-score-adj, within the
// node's limits. Without a limit nobody asks himself below 0, the score of an ordinary process, unless the kubelet has put
// him there: what is above can be killed for the node, what is below outlives the node's own programs.
//
// Example: -900 gives -500 under a limit of -500, and 0 without one (-997 for a Guaranteed pod, which had -997).
//
// Where nobody asks, what tuning says stands (View.Dynamic.OOMScores).
func (j *job) oomScore() {
	if !j.Takes(protocol.FeatureOOMScore, plan.OOMScoreAdj) {
		return
	}
	asked, ok := j.Pod.Ask.OOMScoreAdjFor(j.c.Name)
	if !ok {
		j.tunedScore()
		return
	}
	why := "annotation oom-score-adj"
	if _, own := j.Pod.Ask.OOMScoreAdjByContainer[j.c.Name]; own {
		why = "annotation oom-score-adj-spec"
	}
	least, whose := j.oomLeast()
	n := max(min(asked, j.View.Limits.OOMScoreAdjMax), least)
	if n != asked {
		why += ", capped by the node"
	}
	if n > asked {
		why += whose
	}
	if base := j.c.Base.OOMScoreAdj; base.Set && base.V == int64(n) {
		return
	}
	j.Set(protocol.FeatureOOMScore, plan.OOMScoreAdj, plan.Int(n), why)
}

// tunedScore plans what the loop says, for those processes that have the score the container began with: one that has set its own keeps it,
// and so do those that it forks.
func (j *job) tunedScore() {
	tuned, ok := j.View.Dynamic.OOMScores[j.c.ID]
	base := j.c.Base.OOMScoreAdj
	if !ok || !base.Set {
		return
	}
	least := j.View.Limits.OOMScoreAdjMin
	n, why := tuned.Score, tuned.Reason
	if least.Set && n < least.V {
		n, why = least.V, why+", capped by the node"
	}
	if n >= base.V {
		return
	}
	j.Set(protocol.FeatureOOMScore, plan.OOMScoreAdj, plan.Int(n), why)
	j.Plan[len(j.Plan)-1].Only = base
}

// BaseOOMScore is the oom_score_adj that stands without tuning; none where it is not known, or where somebody has asked for one.
func BaseOOMScore(p *workload.Pod, c *workload.Container) unit.Opt {
	if _, asked := p.Ask.OOMScoreAdjFor(c.Name); asked {
		return unit.Opt{}
	}
	return c.Base.OOMScoreAdj
}

// oomLeast is the lowest score that the container may ask for, and why where nobody has set one.
func (j *job) oomLeast() (least int, why string) {
	if l := j.View.Limits.OOMScoreAdjMin; l.Set {
		return int(l.V), ""
	}
	if base := j.c.Base.OOMScoreAdj; base.Set && base.V < 0 {
		return int(base.V), " at the kubelet's own (limits.oomScoreAdjMin is not set)"
	}
	return 0, " at an ordinary process's (limits.oomScoreAdjMin is not set)"
}
