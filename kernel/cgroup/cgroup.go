// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package cgroup knows which file carries which knob, what to write to it and what its content means, on both cgroup
// versions.
//
// FS is a value made once by Open, the only place where the version is asked. Render, Same, Holds and Table are pure; Read
// and Prepare read the kernel; nothing here writes: that is kernel/apply's alone. It imports model/*, kernel/root and the
// standard library only.
package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup/format"
	"github.com/koord-rt/koord-rt/kernel/cgroup/v1"
	"github.com/koord-rt/koord-rt/kernel/cgroup/v2"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// ErrNoFile is wrapped when a knob is no cgroup file in this cgroup version, or its controller is not mounted.
var ErrNoFile = errors.New("no cgroup file")

// ErrRange is wrapped when a value lies outside the knob's range.
var ErrRange = errors.New("value out of range")

// Write is one write(2).
type Write struct {
	File string // absolute
	Data string
}

// hierarchy is what differs between the versions.
type hierarchy interface {
	File(k plan.Knob) string
	Base(k plan.Knob) string
	ProcsBase() string
	UsageFile() string
	Companion(k plan.Knob) string
	Nested(k plan.Knob) bool
	Render(s plan.Setting, w unit.WeightFormula, current []byte) (string, error)
	Parse(k plan.Knob, key string, raw []byte, w unit.WeightFormula) (plan.Value, error)
}

// Options of Open.
type Options struct {
	// Weight is the shares→weight formula of containers (the runtime's), PodWeight that of every level above (kubelet's).
	Weight, PodWeight unit.WeightFormula
	// Page is the size of the kernel's pages, in which it holds memory; default 4096.
	Page unit.Bytes
}

// FS is one node's cgroup filesystem. It is immutable and safe for concurrent use.
type FS struct {
	version node.CgroupVersion
	h       hierarchy
	o       Options
	files   *root.Files
	sysctl  string
}

// Open chooses the rendering. On v1 it fails when no controller of ours is mounted below r.Cgroup.
func Open(r root.Roots, v node.CgroupVersion, o Options) (FS, error) {
	if v == node.CgroupV2 {
		return FS{version: v, h: v2.Hierarchy{Root: r.Cgroup}, o: o, sysctl: sysctlDir(r)}, nil
	}
	h, err := v1.Open(r.Cgroup)
	return FS{version: node.CgroupV1, h: h, o: o, sysctl: sysctlDir(r)}, err
}

// Over is the same with files that stay open until theirs is closed; nil opens and closes at each read. It is for one
// goroutine, as files are.
func (f FS) Over(files *root.Files) FS {
	f.files = files
	return f
}

// Version is the cgroup version.
func (f FS) Version() node.CgroupVersion { return f.version }

// formula is the one used at the target's level.
func (f FS) formula(l plan.Level) unit.WeightFormula {
	if l == plan.LevelContainer {
		return f.o.Weight
	}
	return f.o.PodWeight
}

// Dir is the directory of the target's cgroup in the knob's hierarchy.
func (f FS) Dir(t plan.Target, k plan.Knob) (string, error) {
	if !f.IsFile(k) || !fits(t, k) {
		return "", f.noFile(k)
	}
	base, _ := f.place(k)
	return root.Join(base, t.Cgroup)
}

func (f FS) noFile(k plan.Knob) error {
	return fmt.Errorf("%s: %w on cgroup v%d", k, ErrNoFile, f.version)
}

// Path is the absolute file that carries the knob.
func (f FS) Path(t plan.Target, k plan.Knob) (string, error) {
	if !f.IsFile(k) || !fits(t, k) {
		return "", f.noFile(k)
	}
	base, file := f.place(k)
	return root.JoinFile(base, t.Cgroup, file)
}

// ProcsDir is the directory whose cgroup.procs lists the target's processes.
func (f FS) ProcsDir(t plan.Target) (string, error) { return root.Join(f.h.ProcsBase(), t.Cgroup) }

// UsageFile is the absolute file with the target's memory in use, for the target's memory knobs.
func (f FS) UsageFile(t plan.Target) (string, error) {
	dir, err := f.Dir(t, plan.MemoryLimit)
	return dir + "/" + f.h.UsageFile(), err
}

// Nested reports whether the kernel refuses a child's value beyond its parent's.
func (f FS) Nested(k plan.Knob) bool { return f.h.Nested(k) }

// IsFile reports whether the knob is a cgroup file on this version, or one of the node.
func (f FS) IsFile(k plan.Knob) bool {
	base, file := f.place(k)
	return base != "" && file != ""
}

// Shared reports whether one file carries both knobs.
func (f FS) Shared(x, y plan.Knob) bool {
	baseX, fileX := f.place(x)
	baseY, fileY := f.place(y)
	return x == y || fileX == fileY && baseX == baseY
}

// SameDir reports whether what is read for both knobs of a cgroup lies in one directory: their files, or its list of
// processes.
func (f FS) SameDir(x, y plan.Knob) bool { return f.base(x) == f.base(y) }

func (f FS) base(k plan.Knob) string {
	if !f.IsFile(k) {
		return f.h.ProcsBase()
	}
	base, _ := f.place(k)
	return base
}

// Render is the pure translation of a setting into writes. A cpu.period on v2 needs the file's present content: it is
// v2.ErrNeedsCurrent here and Prepare's work.
func (f FS) Render(s plan.Setting) ([]Write, error) {
	if err := checkRange(s); err != nil {
		return nil, err
	}
	path, err := f.Path(s.Target, s.Knob)
	if err != nil {
		return nil, err
	}
	data, err := f.text(s, nil)
	if err != nil {
		return nil, err
	}
	return []Write{{File: path, Data: data}}, nil
}

// render is the text to write over the present content.
func (f FS) render(s plan.Setting, current []byte) (string, error) {
	if err := checkRange(s); err != nil {
		return "", err
	}
	return f.text(s, current)
}

func (f FS) text(s plan.Setting, current []byte) (string, error) {
	if isParameter(s.Knob) {
		return s.Value.String(), nil
	}
	return f.h.Render(s, f.formula(s.Target.Level), current)
}

// checkRange holds a value against the knob's table.
func checkRange(s plan.Setting) error {
	info := s.Knob.Info()
	if s.Value.IsText() != info.Text {
		return fmt.Errorf("%s = %q: %w: wrong kind of value", s.Knob, s.Value, ErrRange)
	}
	if info.Text {
		return nil
	}
	n := s.Value.Int()
	if n == unit.Unlimited && s.Knob.Unlimitable() {
		return nil
	}
	if n < info.Min || info.Max != unit.Unlimited && n > info.Max {
		return fmt.Errorf("%s = %d: %w (%s)", s.Knob, n, ErrRange, info.Unit)
	}
	return nil
}

// Read is the knob's present value in its unit: -1 for "max", smallest equivalent shares for a weight, sets as written.
func (f FS) Read(id plan.ID) (plan.Value, error) {
	b := f.files.Get()
	defer b.Put()
	raw, err := f.ReadRaw(b, id.Target, id.Knob)
	if err != nil {
		return plan.Value{}, err
	}
	return f.Parse(id, raw)
}

// ReadRaw reads the knob's file into a buffer without allocating.
func (f FS) ReadRaw(b *root.Buffer, t plan.Target, k plan.Knob) ([]byte, error) {
	base, file := f.place(k)
	if base == "" || file == "" || !fits(t, k) {
		return nil, f.noFile(k)
	}
	if err := root.CheckRel(t.Cgroup); err != nil {
		return nil, err
	}
	if OfNode(k) {
		return b.Read(base, "/", file)
	}
	return b.Read(base, slash(t.Cgroup), t.Cgroup, "/", file)
}

// slash goes before a cgroup's path where it has none: one file has one name.
func slash(cgroup string) string {
	if strings.HasPrefix(cgroup, "/") {
		return ""
	}
	return "/"
}

// ReadEffective is the list that is in force behind a cpuset knob: on v2 a cgroup may ask for CPUs that its ancestors do not
// have, and gets others. ok is false where the asked list is the one in force (v1, other knobs).
func (f FS) ReadEffective(b *root.Buffer, t plan.Target, k plan.Knob) (raw []byte, ok bool, err error) {
	if f.version != node.CgroupV2 || k != plan.CPUSetCPUs && k != plan.CPUSetMems {
		return nil, false, nil
	}
	if err := root.CheckRel(t.Cgroup); err != nil {
		return nil, false, err
	}
	raw, err = b.Read(f.h.Base(k), slash(t.Cgroup), t.Cgroup, "/", f.h.File(k), ".effective")
	return raw, true, err
}

// Parse is the value that a file's content, or a text written to it, means.
func (f FS) Parse(id plan.ID, raw []byte) (plan.Value, error) {
	v, err := f.h.Parse(id.Knob, id.Key, raw, f.formula(id.Target.Level))
	if err != nil {
		return v, fmt.Errorf("read %s of %s: %w", id.Knob, id.Target, err)
	}
	return v, nil
}

// Same reports whether the kernel's value is the wanted one, as far as the kernel can hold it: memory in whole pages,
// CPU lists as sets, shares as the weight that the formula of the target's level makes of them. The other formula's
// weight is not the same: v2's default of 100 is what one of them makes of 1024 shares, and siblings would be incomparable.
// The quota of a systemd unit may be the one that systemd makes of the property: it writes that soon after each time it is
// told ours, and the two would write over each other for ever.
func (f FS) Same(s plan.Setting, current plan.Value) bool {
	want := s.Value
	switch s.Knob {
	case plan.CPUSetCPUs, plan.CPUSetMems:
		return format.SameList(want.String(), []byte(current.String()))
	case plan.MemoryLimit, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh:
		return f.pages(want) == f.pages(current)
	case plan.CPUShares:
		if f.version == node.CgroupV1 {
			return want == current
		}
		w := f.formula(s.Target.Level)
		return w.Weight(unit.Shares(current.Int())) == w.Weight(unit.Shares(want.Int()))
	case plan.CPUQuota:
		return want == current || isUnit(s.Target.Cgroup) && f.unitMakes(&s, current)
	case plan.IOCostQoS, plan.IOCostModel:
		return plan.CostHeld(want.String(), current.String())
	default:
		return want == current
	}
}

// pages are those that hold an amount of memory; what is none, as no limit, stays.
func (f FS) pages(v plan.Value) unit.Bytes {
	b := unit.Bytes(v.Int())
	if b <= 0 {
		return b
	}
	return b / cmp.Or(f.o.Page, 4096)
}

// unitMakes reports a quota that systemd makes of the wanted one.
func (f FS) unitMakes(s *plan.Setting, current plan.Value) bool {
	id := s.ID()
	id.Knob = plan.CPUPeriod
	period, err := f.Read(id)
	if err != nil {
		period = plan.Int(unit.CFSPeriod) // it has ended, or is on paper
	}
	return plan.Int(unit.UnitQuota(unit.Micros(s.Value.Int()), unit.Micros(period.Int()))) == current
}

// isUnit reports a cgroup that systemd writes to.
func isUnit(cgroup string) bool {
	return strings.HasSuffix(cgroup, ".slice") || strings.HasSuffix(cgroup, ".scope")
}

// Holds compares a file's content with a setting. It does not allocate when they agree.
func (f FS) Holds(s *plan.Setting, raw []byte) (bool, error) {
	if s.Knob == plan.CPUSetCPUs || s.Knob == plan.CPUSetMems {
		return format.SameList(s.Value.String(), raw), nil
	}
	v, err := f.h.Parse(s.Knob, s.Key, raw, f.formula(s.Target.Level))
	if err != nil {
		return false, fmt.Errorf("read %s of %s: %w", s.Knob, s.Target, err)
	}
	return f.Same(*s, v), nil
}
