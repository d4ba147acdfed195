// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// prober is one run over the knobs.
type prober struct {
	k      *node.Kernel
	fs     cgroup.FS
	roots  root.Roots
	sample *sample
	// why there is no sample.
	none error
	errs []error
}

// knobs fills in k.Knobs. It returns what was inconclusive.
func knobs(ctx context.Context, k *node.Kernel, fs cgroup.FS, roots root.Roots, kubepodsRoot string) error {
	p := &prober{k: k, fs: fs, roots: roots}
	if fs.Version() == node.CgroupV2 {
		k.WeightedBy = weighers(fs, sys.FS(roots.Sys), k.Disks)
	}
	p.sample, p.none = newSample(fs, roots, kubepodsRoot)
	if p.sample == nil {
		p.errs = append(p.errs, p.none)
	}
	for _, f := range cgroup.Table() {
		if err := ctx.Err(); err != nil {
			p.errs = append(p.errs, fmt.Errorf("%w: %w", ErrInconclusive, err))
			k.Knobs[f.Knob] = node.Support{Why: "not probed: " + err.Error()}
			continue
		}
		switch {
		case f.Elsewhere != "":
			k.Knobs[f.Knob] = p.elsewhere(f.Knob)
			continue
		case cgroup.OfRoot(f.Knob):
			k.Knobs[f.Knob] = p.rootFile(f)
			continue
		}
		k.Knobs[f.Knob] = p.file(fs, f)
	}
	if p.sample != nil {
		p.errs = append(p.errs, p.sample.close())
	}
	return errors.Join(p.errs...)
}

// file decides a knob that is a cgroup file: by its existence, then by a write where existence is not enough.
func (p *prober) file(fs cgroup.FS, f cgroup.File) node.Support {
	name, since := f.V2, f.SinceV2
	if fs.Version() == node.CgroupV1 {
		name, since = f.V1, f.SinceV1
	}
	if name == "" {
		return node.Support{Why: fmt.Sprintf("cgroup v%d has no file for it", fs.Version())}
	}
	if !fs.IsFile(f.Knob) {
		return node.Support{Why: fmt.Sprintf("the %s controller is not mounted in cgroup v1", f.V1Controller)}
	}
	if p.sample == nil {
		return node.Support{Why: "not probed: " + p.none.Error()}
	}
	path, err := fs.Path(p.sample.target, f.Knob)
	if err == nil {
		_, err = os.Stat(path)
	}
	switch {
	case err == nil:
	case !errors.Is(err, os.ErrNotExist):
		p.errs = append(p.errs, fmt.Errorf("probe %s: %w: %w", f.Knob, ErrInconclusive, err))
		return node.Support{Why: "not probed: " + err.Error()}
	default:
		return p.missing(fs, f.Knob, name, since)
	}
	if err := p.try(f.Knob); err != nil {
		return node.Support{Why: fmt.Sprintf("%s exists, but takes no value: %v", name, err)}
	}
	return p.judge(f.Knob)
}

// missing explains why a file is not there. On v2 the cause may be its controller; when that is available and only not
// switched on, the probe does not know.
func (p *prober) missing(fs cgroup.FS, k plan.Knob, name, since string) node.Support {
	controller, _, _ := strings.Cut(name, ".")
	if fs.Version() == node.CgroupV2 {
		if have, err := root.Read(p.roots.Cgroup + "/cgroup.controllers"); err == nil && !word(have, controller) {
			return node.Support{Why: fmt.Sprintf("no %s: cgroup v2 does not have the %s controller (bound to v1, or switched off at boot)", name, controller)}
		}
		dir, err := fs.Dir(p.sample.target, k)
		if err == nil {
			if on, err := root.Read(dir + "/cgroup.controllers"); err == nil && !word(on, controller) {
				why := fmt.Sprintf("no %s: the %s controller cannot be switched on below %s", name, controller, p.roots.Cgroup)
				p.errs = append(p.errs, fmt.Errorf("probe %s: %w: %s", k, ErrInconclusive, why))
				return node.Support{Why: why}
			}
		}
	}
	return node.Support{Why: absence(name, since, p.k)}
}

// absence says in words why a kernel with the controller has no such file. since is a version or a kernel family.
func absence(name, since string, k *node.Kernel) string {
	major, minor, err := ParseRelease(since)
	switch {
	case since == "":
		return "no " + name
	case err != nil:
		return fmt.Sprintf("no %s: on cgroup v%d only %s kernels have it", name, k.Cgroup, since)
	case k.AtLeast(major, minor):
		return fmt.Sprintf("no %s: this Linux %d.%d was built without it", name, k.Major, k.Minor)
	}
	return fmt.Sprintf("no %s: it appeared in Linux %s; this is %d.%d", name, since, k.Major, k.Minor)
}

// try writes a value to our own sample, for the files whose existence does not say that the kernel takes one.
func (p *prober) try(k plan.Knob) error {
	if !p.sample.ours {
		return nil
	}
	switch k {
	case plan.CPUBurst:
		// A burst needs a quota; 10 ms of 50 ms.
		if err := p.write(plan.CPUQuota, 50000); err != nil {
			return err
		}
		return p.write(k, 10000)
	case plan.CPUIdle:
		return p.write(k, 1)
	case plan.CPUBvt:
		return p.write(k, 2)
	}
	return nil
}

func (p *prober) write(k plan.Knob, n int64) error {
	s := plan.Setting{Target: p.sample.target, Knob: k, Value: plan.Int(n)}
	writes, err := p.sample.fs.Render(s)
	if err != nil {
		return err
	}
	for _, w := range writes {
		if err := root.Write(w.File, w.Data); err != nil {
			return err
		}
	}
	got, err := p.sample.fs.Read(s.ID())
	if err == nil && got != s.Value {
		err = fmt.Errorf("wrote %d, reads %s", n, got)
	}
	return err
}

// judge looks at the switches beside a file that exists and works.
func (p *prober) judge(k plan.Knob) node.Support {
	switch k {
	case plan.CPUBvt:
		s, err := root.Read(proc.FS(p.roots.Proc).Path("sys/kernel/sched_group_identity_enabled"))
		if err == nil && strings.TrimSpace(s) == "0" {
			return node.Support{Why: "kernel.sched_group_identity_enabled is 0: the kernel ignores group identities"}
		}
	case plan.IOWeight:
		if p.k.Cgroup == node.CgroupV2 && !slices.Contains(slices.Collect(maps.Values(p.k.WeightedBy)), node.ByIOCost) {
			return node.Support{OK: true, Degraded: p.noIocost()}
		}
	}
	return node.Support{OK: true}
}

// noIocost says what a weight does without iocost; disks under BFQ have a file of their own, which is not ours.
func (p *prober) noIocost() string {
	why := "no device has iocost on (io.cost.qos enable=1): a weight has no effect until one has"
	schedulers, err := sys.FS(p.roots.Sys).IOSchedulers()
	if err != nil {
		return why
	}
	for _, disk := range slices.Sorted(maps.Keys(schedulers)) {
		if schedulers[disk] == "bfq" {
			why += "; " + disk + " is under BFQ, which reads io.bfq.weight instead"
		}
	}
	return why
}

// weighers looks for "8:0 enable=1 ctrl=auto …" in the root's io.cost.qos (cgroup-v2.rst, "IO Interface Files"), and for BFQ. A disk with both
// has its weights from iocost: BFQ reads only its own file. What cannot be read has neither.
func weighers(fs cgroup.FS, disks sys.FS, numbers map[string]string) map[string]string {
	out := map[string]string{}
	if schedulers, err := disks.IOSchedulers(); err == nil {
		for disk, scheduler := range schedulers {
			if number, known := numbers[strings.ReplaceAll(disk, "!", "/")]; known && scheduler == "bfq" {
				out[number] = node.ByBFQ
			}
		}
	}
	if lines, err := fs.Lines(plan.IOCostQoS); err == nil {
		for number, line := range lines {
			if plan.CostWord(line, "enable") == "1" {
				out[number] = node.ByIOCost
			}
		}
	}
	return out
}

func word(s, w string) bool {
	for f := range strings.FieldsSeq(s) {
		if f == w {
			return true
		}
	}
	return false
}
