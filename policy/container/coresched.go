// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// The group of pods without a group id, and what upstream appends for classes that keep others off their cores.
const (
	defaultGroup   = "default"
	expellerSuffix = "-expeller"
)

// coreSched plans the core-scheduling group. Every pod of a class with cpuQOS enabled has one under cpuPolicy coreSched;
// elsewhere only pods that ask by label. The group is the pod's UID for policy exclusive, else the label's id within the
// pod's namespace (a label must not let a pod share cores with another tenant's, D13), else "default", with "-expeller" where the class expels others. SYSTEM pods and policy none have none.
func (j *job) coreSched() {
	ask := &j.Pod.Ask
	asked := ask.CoreSchedGroup != "" || ask.CoreSchedPolicy == protocol.CoreSchedPolicyExclusive
	byNode := draft.Str(j.View.Strategy.Policy().CPUPolicy) == strategy.CPUPolicyCoreSched
	if !asked && !byNode || !j.Takes(protocol.FeatureCoreSched, plan.CoreSchedCookie) {
		return
	}
	if ask.CoreSchedPolicy == protocol.CoreSchedPolicyNone || j.Pod.Class() == protocol.QoSSystem {
		return
	}
	q, why, enabled := draft.CPUQOS(j.View, j.Pod)
	if !asked && !enabled {
		return
	}
	if !j.View.Limits.CoreSched {
		if asked {
			j.Problem(protocol.LabelCoreSchedGroupID, "core scheduling is switched off in the node's limits")
		}
		return
	}
	group := defaultGroup
	switch {
	case ask.CoreSchedPolicy == protocol.CoreSchedPolicyExclusive:
		group, why = j.Pod.UID, "label core-sched-policy exclusive"
	case ask.CoreSchedGroup != "":
		group, why = j.Pod.Namespace+"/"+ask.CoreSchedGroup, "label core-sched-group-id"
	}
	if enabled && draft.On(q.CoreExpeller) {
		group += expellerSuffix
	}
	j.Set(protocol.FeatureCoreSched, plan.CoreSchedCookie, plan.Text(group), why)
}
