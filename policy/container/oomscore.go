// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
)

// oomScore plans oom_score_adj: the container's entry of oom-score-adj-spec, else the pod's oom-score-adj, within the
// node's limits. Example: -900 under a limit of -500 gives -500.
func (j *job) oomScore() {
	asked, ok := j.Pod.Ask.OOMScoreAdjFor(j.c.Name)
	if !ok || !j.Takes(protocol.FeatureOOMScore, plan.OOMScoreAdj) {
		return
	}
	why := "annotation oom-score-adj"
	if _, own := j.Pod.Ask.OOMScoreAdjByContainer[j.c.Name]; own {
		why = "annotation oom-score-adj-spec"
	}
	n := max(min(asked, j.View.Limits.OOMScoreAdjMax), j.View.Limits.OOMScoreAdjMin)
	if n != asked {
		why += ", capped by the node"
	}
	if base := j.c.Base.OOMScoreAdj; base.Set && base.V == int64(n) {
		return
	}
	j.Set(protocol.FeatureOOMScore, plan.OOMScoreAdj, plan.Int(n), why)
}
