// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hook

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Change is what an answer asks for beyond what the server was sent. Servers answer with a copy of the request in which
// they change a few fields (koordlet does), so what is equal to the request is nobody's wish.
type Change struct {
	// Plan holds the resources and variables of one target, owned by the server; sorted. Values of variables may be
	// secrets and must not be logged.
	Plan plan.Plan
	// Labels and Annotations are added or changed entries.
	Labels, Annotations map[string]string
	// CgroupParent is the pod's new cgroup parent, empty when it stays.
	CgroupParent string
	// EnvRemoved are variables of the request that the answer leaves out: when it names any variable, the answer's are
	// the container's (as upstream's proxy reads it).
	EnvRemoved []string
	// Swap is the limit of memory and swap in bytes, which no knob carries.
	Swap unit.Opt
	// Unified are cgroup v2 files without a knob and what to write to them.
	Unified map[string]string
	// Problems are fields that could not be used; the rest applies.
	Problems []protocol.Problem
}

// Empty reports that the answer asks for nothing.
func (c *Change) Empty() bool {
	return len(c.Plan) == 0 && len(c.Labels) == 0 && len(c.Annotations) == 0 && c.CgroupParent == "" &&
		len(c.EnvRemoved) == 0 && !c.Swap.Set && len(c.Unified) == 0
}

// Change compares the answer with its request. server is the hook server's name, t the pod as a plan target.
func (a *PodAnswer) Change(asked *PodRequest, server string, t plan.Target) Change {
	d := differ{server: server, target: t}
	d.out.Labels = d.texts("labels", asked.Labels, a.Labels)
	d.out.Annotations = d.texts("annotations", asked.Annotations, a.Annotations)
	d.parent("cgroup_parent", asked.CgroupParent, a.CgroupParent)
	d.resources(asked.Resources, a.Resources)
	d.out.Plan.Sort()
	return d.out
}

// Change compares the answer with its request. server is the hook server's name, t the container as a plan target.
func (a *ContainerAnswer) Change(asked *ContainerRequest, server string, t plan.Target) Change {
	d := differ{server: server, target: t}
	d.out.Annotations = d.texts("container_annotations", asked.Annotations, a.Annotations)
	d.parent("pod_cgroup_parent", asked.PodCgroupParent, a.PodCgroupParent)
	d.resources(asked.Resources, a.Resources)
	d.env(asked.Env, a.Env)
	d.out.Plan.Sort()
	return d.out
}

// differ collects a Change.
type differ struct {
	server string
	target plan.Target
	out    Change
}

func (d *differ) problem(key, reason string) {
	const longest = 200
	d.out.Problems = append(d.out.Problems, protocol.Problem{Key: key, Reason: strings.ToValidUTF8(reason[:min(len(reason), longest)], "")})
}

func (d *differ) set(k plan.Knob, key string, v plan.Value) {
	d.out.Plan = append(d.out.Plan, plan.Setting{
		Target: d.target, Knob: k, Key: key, Value: v, Owner: featureOf(k), Reason: "answer of the hook server", Hook: d.server,
	})
}

// texts keeps what is new or other in the answer. A NUL would end the text in the kernel or in C code behind us, and keys
// of our own domain are the record of what we did.
func (d *differ) texts(field string, asked, answered map[string]string) map[string]string {
	var out map[string]string
	for _, key := range slices.Sorted(maps.Keys(answered)) {
		value := answered[key]
		if have, ok := asked[key]; ok && have == value {
			continue
		}
		if key == "" || strings.ContainsRune(key, 0) || strings.ContainsRune(value, 0) {
			d.problem(field, strconv.Quote(key)+": an empty key, or a NUL in key or value")
			continue
		}
		if strings.HasPrefix(key, protocol.DomainOwn) {
			d.problem(field, strconv.Quote(key)+": not a hook server's to set")
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[key] = value
	}
	return out
}

func (d *differ) parent(field, asked, answered string) {
	switch {
	case answered == "" || answered == asked:
	case strings.ContainsRune(answered, 0) || path.Clean("/"+answered) != "/"+strings.TrimPrefix(answered, "/"):
		d.problem(field, "want a clean path or a slice name, have "+strconv.Quote(answered))
	default:
		d.out.CgroupParent = answered
	}
}

// env takes the answer's variables. An answer without any says nothing of them.
func (d *differ) env(asked, answered map[string]string) {
	if len(answered) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(answered)) {
		value := answered[name]
		if have, ok := asked[name]; ok && have == value {
			continue
		}
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			d.problem("container_envs", strconv.Quote(name)+": a name that is empty or has '=', or a NUL in name or value")
			continue
		}
		d.set(plan.Env, name, plan.Text(value))
	}
	for name := range asked {
		if _, kept := answered[name]; !kept {
			d.out.EnvRemoved = append(d.out.EnvRemoved, name)
		}
	}
	slices.Sort(d.out.EnvRemoved)
}

// resources takes what the answer specifies and the request had otherwise. Zero and "" are "not specified", as the
// protocol says; upstream's proxy writes a missing oom_score_adj or cpuset over the request's, which loses them for every
// server that answers only what it changes. Huge page limits are not taken from answers, there as here.
func (d *differ) resources(asked, answered *Resources) {
	if answered == nil {
		return
	}
	if asked == nil {
		asked = &Resources{}
	}
	for _, n := range [...]struct {
		field       string
		knob        plan.Knob
		have, wants int64
	}{
		{"cpu_period", plan.CPUPeriod, asked.Period, answered.Period},
		{"cpu_quota", plan.CPUQuota, asked.Quota, answered.Quota},
		{"cpu_shares", plan.CPUShares, asked.Shares, answered.Shares},
		{"memory_limit_in_bytes", plan.MemoryLimit, asked.Memory, answered.Memory},
		{"oom_score_adj", plan.OOMScoreAdj, asked.OOMScoreAdj, answered.OOMScoreAdj},
	} {
		if n.wants == 0 || n.wants == n.have {
			continue
		}
		if !inRange(n.knob, n.wants) {
			d.problem(n.field, outOfRange(n.knob, n.wants))
			continue
		}
		d.set(n.knob, "", plan.Int(n.wants))
	}
	d.list("cpuset_cpus", plan.CPUSetCPUs, asked.CPUs, answered.CPUs)
	d.list("cpuset_mems", plan.CPUSetMems, asked.Mems, answered.Mems)
	switch s := answered.Swap; {
	case s == 0 || s == asked.Swap:
	case s < -1:
		d.problem("memory_swap_limit_in_bytes", "want bytes or -1, have "+strconv.FormatInt(s, 10))
	default:
		d.out.Swap = unit.Some(s)
	}
	d.unified(asked.Unified, answered.Unified)
}

func (d *differ) list(field string, k plan.Knob, asked, answered string) {
	if answered == "" || answered == asked {
		return
	}
	if err := protocol.CheckCPUList(answered); err != nil {
		d.problem(field, err.Error())
		return
	}
	d.set(k, "", plan.Text(answered))
}

// inRange holds a number against what the kernel takes.
func inRange(k plan.Knob, n int64) bool {
	info := k.Info()
	if n == unit.Unlimited && k.Unlimitable() {
		return true
	}
	return n >= info.Min && (n <= info.Max || info.Max == unit.Unlimited)
}

func outOfRange(k plan.Knob, n int64) string {
	return "out of range: " + strconv.FormatInt(n, 10) + ", want " + k.Info().Unit + " for " + k.String()
}

// featureOf is the feature whose knob it is, so that a hook server's value counts where ours would.
func featureOf(k plan.Knob) protocol.Feature {
	i, _ := slices.BinarySearchFunc(owners[:], k, func(o owner, k plan.Knob) int { return cmp.Compare(o.last, k) })
	return owners[min(i, len(owners)-1)].feature
}

// owner is the feature of the knobs up to last, in the order of the knobs.
type owner struct {
	last    plan.Knob
	feature protocol.Feature
}

var owners = [...]owner{
	{plan.CPUPeriod, protocol.FeatureBatch}, {plan.CPUBurst, protocol.FeatureBurst}, {plan.SchedPolicy, protocol.FeatureIdentity},
	{plan.CPUSetMems, protocol.FeatureCPUSet}, {plan.MemoryLimit, protocol.FeatureBatch}, {plan.PageCacheSync, protocol.FeatureMemory},
	{plan.IOLatency, protocol.FeatureBlkIO}, {plan.RDTMonGroup, protocol.FeatureLLC}, {plan.CoreSchedCookie, protocol.FeatureCoreSched},
	{plan.OOMScoreAdj, protocol.FeatureOOMScore}, {plan.Mount, protocol.FeatureDevices},
}
