// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package place finds in the cgroup tree what a runtime does not tell of its pods and containers: where they are, one of their
// processes, and which resources are in force.
//
// Inputs are a pod's UID and a container's id; outputs are directories below the cgroup root, process ids and resources. It
// only reads. It imports kernel/cgroup, kernel/proc, kernel/root and model; nothing that writes.
package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// ErrNone is wrapped where there is no such cgroup, which may be made or removed at this moment.
var ErrNone = errors.New("no such cgroup")

// FS is a node's tree of pods. It is immutable and safe for concurrent use.
type FS struct {
	// groups are one on v1; on v2 one for each formula of weights: which one the runtime has used is not known yet.
	groups []cgroup.FS
	proc   proc.FS
	root   string
}

// New takes the roots of a node, its cgroup version, and the kubelet's --cgroup-root.
func New(r root.Roots, v node.CgroupVersion, kubepodsRoot string) (FS, error) {
	f := FS{proc: proc.FS(r.Proc), root: kubepodsRoot}
	formulas := []unit.WeightFormula{unit.Linear, unit.Quadratic}
	if v == node.CgroupV1 {
		formulas = formulas[:1] // which has shares
	}
	for _, formula := range formulas {
		g, err := cgroup.Open(r, v, cgroup.Options{Weight: formula, Page: unit.Bytes(os.Getpagesize())})
		if err != nil {
			return FS{}, err
		}
		f.groups = append(f.groups, g)
	}
	return f, nil
}

// Pod is the cgroup of the pod with a UID, with either driver.
func (f FS) Pod(uid string) (string, error) {
	for _, dir := range cgrouppath.OfUID(f.root, uid) {
		at, err := f.groups[0].ProcsDir(plan.Target{Cgroup: dir})
		if err != nil {
			return "", err
		}
		if st, err := os.Stat(at); err == nil && st.IsDir() {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find the cgroup of pod %.64q below %q (host.kubepodsRoot): %w", uid, "/"+strings.Trim(f.root, "/"), ErrNone)
}

// Within is the cgroup of a container in its pod's: named by its id, alone with the cgroupfs driver, else at the end of a scope's
// name ("docker-ID.scope"). pid is one of its own processes, 0 when there is none.
func (f FS) Within(pod, id string) (dir string, pid int, err error) {
	at, err := f.groups[0].ProcsDir(plan.Target{Cgroup: pod})
	if err != nil {
		return "", 0, err
	}
	list, err := os.ReadDir(at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", 0, fmt.Errorf("find container %.64q: %w", id, err)
	}
	for _, e := range list {
		if e.IsDir() && named(e.Name(), id) {
			return path.Join(pod, e.Name()), first(path.Join(at, e.Name(), "cgroup.procs")), nil
		}
	}
	return "", 0, fmt.Errorf("find container %.64q in %s: %w", id, pod, ErrNone)
}

// named reports whether a directory's name is a container's; its monitor's "crio-conmon-ID.scope" is not.
func named(name, id string) bool {
	if id == "" {
		return false
	}
	own, scope := strings.CutSuffix(name, ".scope")
	if own == id {
		return true
	}
	own, ends := strings.CutSuffix(own, "-"+id)
	return ends && (scope || own == "crio") && !strings.HasSuffix(own, "conmon")
}

func first(procs string) int {
	text, err := os.ReadFile(procs)
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		return 0
	}
	return pid
}

// limits are the knobs whose value in the kernel tells what was asked; v2's weights tell no shares.
var limits = [...]plan.Knob{plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.MemoryLimit}

// noLimit is above every limit that is one: v1 shows "none" as the largest number of pages.
const noLimit = 1 << 62

// Resources are those in force at a container's cgroup, in the words of a request: no limit is absent. ours are plans that have
// been applied to it, newest first: a value that the kernel rounds or shows differently stands as it was planned, so that
// whoever takes our values out again finds them. CPU lists are absent: they change with the node's load, and a kubelet that gives
// CPUs away states them every ten seconds.
func (f FS) Resources(t plan.Target, pid int, ours []plan.Plan) (r workload.Resources) {
	to := [...]*unit.Opt{&r.Shares, &r.Quota, &r.Period, &r.MemoryLimit}
	for i, k := range limits {
		*to[i] = f.limit(t, k, ours)
	}
	if !r.Quota.Set && r.Period.V == int64(unit.CFSPeriod) {
		r.Period = unit.Opt{} // the kernel's default; another is the kubelet's cpuCFSQuotaPeriod
	}
	if pid > 0 {
		if score, err := f.proc.OOMScoreAdj(pid); err == nil && score != 0 {
			r.OOMScoreAdj = unit.Some(int64(score))
		}
	}
	return r
}

func (f FS) limit(t plan.Target, k plan.Knob, ours []plan.Plan) unit.Opt {
	own := unit.Opt{}
	for _, g := range f.groups {
		v, err := g.Read(plan.ID{Target: t, Knob: k})
		if err != nil {
			return unit.Opt{}
		}
		for _, p := range ours {
			for i := range p {
				if s := p[i]; s.Knob == k && s.Key == "" && g.Same(s, v) {
					return unit.Some(s.Value.Int())
				}
			}
		}
		if n := v.Int(); n > 0 && n < noLimit && !(k == plan.CPUShares && g.Version() == node.CgroupV2) {
			own = unit.Some(n)
		}
	}
	return own
}
