// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/systemd"
	"github.com/koord-rt/koord-rt/kernel/tc"
	"github.com/koord-rt/koord-rt/kernel/wire"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// machine is the kernel and the ledger side by side.
type machine struct {
	fs      cgroup.FS
	roots   root.Roots
	applier *apply.Applier
	records []journal.Record
	torn    int
	boot    string
}

// noJournal refuses to record, and with that kernel/apply refuses to write.
type noJournal struct{}

// Append implements journal.Journal.
func (noJournal) Append(...journal.Record) error { return errReadOnly }

var errReadOnly = fmt.Errorf("this command does not write")

// open reads the ledgers and opens the kernel. j is nil for commands that only read.
func (e *env) open(j journal.Journal) (*machine, error) {
	if j == nil {
		j = noJournal{}
	}
	m := &machine{roots: e.roots()}
	var err error
	if m.records, m.torn, err = ledger.ReadAll(e.path(e.runDir)); err != nil {
		return nil, fmt.Errorf("%w (run koordctl as root)", err)
	}
	if m.boot, err = m.roots.BootID(); err != nil {
		return nil, fmt.Errorf("%w (is --host-root right?)", err)
	}
	for i := range m.records {
		// The run directory does not outlive a boot, so a record that names none is of this one.
		if m.records[i].Boot == "" {
			m.records[i].Boot = m.boot
		}
	}
	weights := e.weights()
	if m.fs, err = cgroup.Open(m.roots, cgroupVersion(m.roots), weights); err != nil {
		return nil, fmt.Errorf("open cgroups: %w (is --host-root right?)", err)
	}
	p := proc.FS(m.roots.Proc)
	m.applier, err = apply.New(apply.Options{
		FS: m.fs, Roots: m.roots, Journal: j, Tasks: wire.Tasks{FS: p}, Cookies: cookies{proc.NewCoreSched(p)},
		Groups: wire.Groups{FS: resctrl.FS(m.roots.Resctrl), Proc: p}, Links: tc.Shaper{}, Writer: e.writer,
		Units: e.unitsOf(m.roots, weights),
	})
	if err != nil {
		return nil, fmt.Errorf("open kernel: %w", err)
	}
	return m, nil
}

// unitsOf are systemd's units, where systemd is PID 1 of the host; they are asked nothing before a value is to be theirs.
func (e *env) unitsOf(roots root.Roots, weights cgroup.Options) apply.Units {
	if e.units != nil {
		return e.units
	}
	if !exists(e.path("/run/systemd/system")) {
		return nil
	}
	v1 := cgroupVersion(roots) == node.CgroupV1
	return wire.Units{Bus: systemd.New(v1), Container: weights.Weight, Pod: weights.PodWeight, V1: v1}
}

// weights are the formulas that our daemons have found on this node, the first of the table's before the others', and as
// long as none has told any those of current runtimes and kubelets; with the kernel's page.
func (e *env) weights() cgroup.Options {
	out := cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear, Page: unit.Bytes(os.Getpagesize())}
	for _, d := range slices.Backward(e.installed()) {
		if d.status == nil {
			continue
		}
		if f, ok := unit.ParseWeightFormula(d.status.WeightFormula); ok {
			out.Weight = f
		}
		if f, ok := unit.ParseWeightFormula(d.status.PodWeightFormula); ok {
			out.PodWeight = f
		}
	}
	return out
}

// cgroupVersion is 2 when the root itself is a cgroup2 mount; hybrid counts as 1.
func cgroupVersion(r root.Roots) node.CgroupVersion {
	if _, err := os.Stat(r.Cgroup + "/cgroup.controllers"); err == nil {
		return node.CgroupV2
	}
	return node.CgroupV1
}

// line is one knob of one target: what is wanted against what stands in the kernel.
type line struct {
	Target plan.Target `json:"-"`
	Level  string      `json:"level"`
	Name   string      `json:"name,omitempty"`
	Cgroup string      `json:"cgroup,omitempty"`
	ID     string      `json:"containerID,omitempty"`
	Knob   string      `json:"knob"`
	Key    string      `json:"key,omitempty"`
	// Kernel is the present value, empty when it is not the kernel's to tell (env, devices).
	Kernel string `json:"kernel,omitempty"`
	Want   string `json:"want"`
	// Drift is "no", "yes", "n/a" (nothing to compare), "observe", "failed" or "restored".
	Drift  string    `json:"drift"`
	Before string    `json:"before,omitempty"`
	Owner  string    `json:"owner,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Via    string    `json:"via,omitempty"`
	When   time.Time `json:"when,omitzero"`
	Gen    uint64    `json:"generation,omitempty"`
	// Err is why the last write failed, or why the kernel's value could not be read.
	Err string `json:"error,omitempty"`
	// Proof is what was read at start, when it was not what was wanted.
	Proof string `json:"proof,omitempty"`
	// Last is when somebody wrote over the value last, since it was ours.
	Last *drifted `json:"lastDrift,omitempty"`
}

// drifted is one drift that was noticed.
type drifted struct {
	When  time.Time `json:"when"`
	Found string    `json:"found"`
	// Source is who may have written it: "runtime", "kubelet", "systemd", "someone", or several joined by "-or-".
	Source string `json:"source"`
}

// Values of line.Drift.
const (
	driftNo       = "no"
	driftYes      = "yes"
	driftNone     = "n/a"
	driftObserve  = "observe"
	driftFailed   = "failed"
	driftRestored = "restored"
)

// lines compares every entry that keep accepts with the kernel. Targets that are gone or of an earlier boot are left
// out; problems are entries without a knob and left out too.
func (m *machine) lines(keep func(*plan.Target) bool) []line {
	entries := ledger.NewIndex(m.records, m.applier.Found).Entries()
	entries = slices.DeleteFunc(entries, func(e ledger.Entry) bool {
		return e.Knob == "" || e.Value == nil && e.Restore == nil || !keep(&e.Target) || !m.exists(&e)
	})
	wanted := make(plan.Plan, 0, len(entries))
	for i := range entries {
		if s, ok := settingOf(&entries[i]); ok {
			wanted = append(wanted, s)
		}
	}
	bad := map[plan.ID]apply.Mismatch{}
	for _, mm := range m.applier.Verify(wanted) {
		bad[mm.Setting.ID()] = mm
	}
	out := make([]line, 0, len(entries))
	for i := range entries {
		out = append(out, m.line(&entries[i], bad))
	}
	return out
}

// exists reports whether the entry is of this boot and its cgroup is the one that stands there.
func (m *machine) exists(e *ledger.Entry) bool {
	r := e.Value
	if r == nil {
		r = e.Restore
	}
	return m.existsAs(e, r.Boot, r.Inode)
}

// existsAs is exists for a record with this boot id and inode; empty and 0 match any.
func (m *machine) existsAs(e *ledger.Entry, boot string, inode uint64) bool {
	if boot != "" && boot != m.boot {
		return false
	}
	if e.Target.Cgroup == "" || e.Target.Level == plan.LevelGroup {
		return true
	}
	k, _ := plan.ParseKnob(e.Knob)
	dir, err := m.fs.Dir(e.Target, k)
	if err != nil {
		if dir, err = m.fs.ProcsDir(e.Target); err != nil {
			return false
		}
	}
	ino, err := root.Inode(dir)
	return err == nil && (inode == 0 || inode == ino)
}

// settingOf is the entry's wish as a setting; ok is false when there is none or it cannot be read.
func settingOf(e *ledger.Entry) (plan.Setting, bool) {
	k, ok := plan.ParseKnob(e.Knob)
	if !ok || e.Value == nil {
		return plan.Setting{}, false
	}
	s := plan.Setting{Target: e.Target, Knob: k, Key: e.Key, Observe: e.Value.Via == journal.ViaObserve}
	if k.Info().Text {
		s.Value = plan.Text(e.Value.Want)
		return s, true
	}
	n, err := strconv.ParseInt(e.Value.Want, 10, 64)
	s.Value = plan.Int(n)
	return s, err == nil
}

func (m *machine) line(e *ledger.Entry, bad map[plan.ID]apply.Mismatch) line {
	l := line{
		Target: e.Target, Level: e.Target.Level.String(), Name: e.Target.Name, Cgroup: e.Target.Cgroup, ID: e.Target.Container,
		Knob: e.Knob, Key: e.Key, Before: m.before(e),
	}
	if e.Proof != nil {
		l.Proof = e.Proof.Err
	}
	if e.Drift != nil {
		l.Last = &drifted{When: e.Drift.Time, Found: e.Drift.Found, Source: e.Drift.Source}
	}
	k, _ := plan.ParseKnob(e.Knob)
	id := plan.ID{Target: e.Target, Knob: k, Key: e.Key}
	if v, err := m.fs.Read(id); err == nil {
		l.Kernel = v.String()
	}
	if e.Value == nil {
		l.from(e.Restore)
		l.Drift = driftRestored
		return l
	}
	l.from(e.Value)
	if e.Runtime != nil && e.Value.Via == journal.ViaDirect && len(e.Value.Written) == 0 {
		// The direct way found the value in place: it was the runtime that wrote it.
		l.Via, l.When = string(e.Runtime.Via), e.Runtime.Time
	}
	s, ok := settingOf(e)
	mm, drifted := bad[id]
	switch {
	case !ok:
		l.Drift, l.Err = driftNone, cmp.Or(l.Err, "the wanted value cannot be read")
	case s.Observe:
		l.Drift = driftObserve
	case specOnly(k):
		l.Drift = driftNone
	case drifted && mm.Err != nil:
		l.Drift, l.Err = driftFailed, mm.Err.Error()
	case drifted:
		l.Drift, l.Kernel = driftYes, mm.Got.String()
	default:
		l.Drift = driftNo
		if l.Kernel == "" {
			l.Kernel = l.Want
		}
	}
	return l
}

func (l *line) from(r *journal.Record) {
	l.Want, l.Owner, l.Reason, l.Via, l.When, l.Gen = r.Want, r.Owner, r.Reason, string(r.Via), r.Time, r.Gen
	if l.Err == "" {
		l.Err = r.Err
	}
}

// before is what stood there without us, in the knob's unit: the kubelet's own wish where the runtime took ours, else
// what was read.
func (m *machine) before(e *ledger.Entry) string {
	switch {
	case e.Runtime != nil && e.Runtime.Base != "":
		return e.Runtime.Base
	case e.Runtime != nil:
		return "unset"
	case e.Original == nil || len(e.Original.Original) == 0:
		return ""
	}
	raw := e.Original.Original[0]
	if id, ok := e.Original.ID(); ok && m.fs.IsFile(id.Knob) {
		if v, err := m.fs.Parse(id, []byte(raw)); err == nil {
			return v.String()
		}
	}
	return raw
}

// specOnly are knobs that stand in the container's specification; no kernel file tells them.
func specOnly(k plan.Knob) bool {
	return plan.KnobSet(plan.Env, plan.Device, plan.CDIDevice, plan.Mount).Has(k)
}
