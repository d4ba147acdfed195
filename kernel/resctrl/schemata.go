// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package resctrl

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
)

// ErrSchemata is wrapped by every error of ParseSchemata and ParseLine.
var ErrSchemata = errors.New("not a schemata line")

// Entry is one cache's (or memory controller's) share: the id before '=' and the text after it, a hexadecimal mask for
// caches and a decimal for bandwidth.
type Entry struct {
	ID    int
	Value string
}

// Line is one resource of a schemata file.
type Line struct {
	// Resource is L3, L3CODE, L3DATA, L2…, MB or SMBA, or one this version does not know.
	Resource string
	Entries  []Entry
}

// String is "L3:0=ff;1=ff".
func (l Line) String() string { return l.Resource + ":" + l.Body() }

// Body is the part after the colon.
func (l Line) Body() string {
	var b strings.Builder
	for i, e := range l.Entries {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(strconv.Itoa(e.ID) + "=" + e.Value)
	}
	return b.String()
}

// Get returns the value of one id.
func (l Line) Get(id int) (string, bool) {
	for _, e := range l.Entries {
		if e.ID == id {
			return e.Value, true
		}
	}
	return "", false
}

// Schemata is a whole file, in its order.
type Schemata []Line

// Line finds a resource.
func (s Schemata) Line(resource string) (Line, bool) {
	for _, l := range s {
		if l.Resource == resource {
			return l, true
		}
	}
	return Line{}, false
}

// String renders the file without the kernel's padding.
func (s Schemata) String() string {
	var b strings.Builder
	for _, l := range s {
		b.WriteString(l.String() + "\n")
	}
	return b.String()
}

// ParseSchemata parses a schemata file, as resctrl.rst, "Schemata files - general concepts":
//
//	MB:0=100;1=100
//	L3:0=fffff;1=fffff
//
// Lines of unknown resources are kept. Lines that cannot be read are in the error, the others are returned.
func ParseSchemata(s string) (Schemata, error) {
	var out Schemata
	var errs []error
	for line := range strings.Lines(s) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		l, err := ParseLine(line)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, l)
	}
	return out, errors.Join(errs...)
}

// maxIDs bounds the entries of a line, of which each is looked for among the others. Each has a CPU at least, and the largest kernels are built
// for 8192 (arch/x86/Kconfig, NR_CPUS).
const maxIDs = 8192

// ParseLine parses a line of ParseSchemata (resctrl.rst), "L3:0=ff;1=ff".
func ParseLine(line string) (Line, error) {
	resource, body, ok := strings.Cut(strings.TrimSpace(line), ":")
	resource = strings.TrimSpace(resource)
	if !ok || resource == "" || strings.ContainsAny(resource, "=; \t\n") {
		return Line{}, fmt.Errorf("%w: %.80q", ErrSchemata, line)
	}
	l := Line{Resource: resource}
	for part := range strings.SplitSeq(body, ";") {
		id, value, ok := strings.Cut(part, "=")
		n, err := strconv.ParseUint(strings.TrimSpace(id), 10, 31)
		value = strings.TrimSpace(value)
		if !ok || err != nil || value == "" || strings.ContainsAny(value, "=: \t\n") {
			return Line{}, fmt.Errorf("%w: %s: %.80q", ErrSchemata, resource, part)
		}
		if len(l.Entries) == maxIDs {
			return Line{}, fmt.Errorf("%w: %s has more than %d ids", ErrSchemata, resource, maxIDs)
		}
		if _, twice := l.Get(int(n)); twice {
			return Line{}, fmt.Errorf("%w: %s names id %d twice", ErrSchemata, resource, n)
		}
		l.Entries = append(l.Entries, Entry{int(n), value})
	}
	return l, nil
}

// Schemata reads a group's schemata ("" is the root group).
func (fs FS) Schemata(group string) (Schemata, error) {
	dir, err := fs.dir(group)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "schemata")
	s, err := root.Read(path)
	if err != nil {
		return nil, err
	}
	out, err := ParseSchemata(s)
	if err != nil {
		return out, fmt.Errorf("parse %s: %w", path, err)
	}
	return out, nil
}

// WriteSchemata sets one resource of a group ("" is the root group) to a line, with or without the "L3:" in front, and
// reports whether anything was written. Only ids that differ are written, in one write; other resources and ids stay.
// An id or resource that the group does not have is an error before anything is written. The kernel rounds MB up to its
// granularity: a value between two steps would differ for ever, so the caller rounds.
func (fs FS) WriteSchemata(group, resource, line string) (changed bool, err error) {
	want, err := ParseLine(resource + ":" + strings.TrimPrefix(strings.TrimSpace(line), resource+":"))
	if err != nil {
		return false, fmt.Errorf("write schemata of resctrl group %q: %w", group, err)
	}
	have, err := fs.Schemata(group)
	if err != nil {
		return false, err
	}
	now, ok := have.Line(resource)
	if !ok {
		return false, fmt.Errorf("write schemata of resctrl group %q: no resource %s here", group, resource)
	}
	diff, err := differing(now, want)
	if err != nil {
		return false, fmt.Errorf("write schemata of resctrl group %q: %w", group, err)
	}
	if len(diff.Entries) == 0 {
		return false, nil
	}
	dir, err := fs.dir(group)
	if err != nil {
		return false, err
	}
	if err := fs.put(dir, have, diff); err != nil {
		return false, fs.explain(err)
	}
	return true, nil
}

// put writes the line alone: the kernel merges it with the rest. A plain file, as in a fake tree, would lose the rest, so
// there the whole is written; the kernel's own file always has size 0.
func (fs FS) put(dir string, have Schemata, diff Line) error {
	path := filepath.Join(dir, "schemata")
	if size, err := fileSize(path); err != nil || size == 0 {
		return root.Write(path, diff.String()+"\n")
	}
	i := slices.IndexFunc(have, func(l Line) bool { return l.Resource == diff.Resource })
	merged := slices.Clone(have)
	merged[i].Entries = slices.Clone(merged[i].Entries)
	for j, e := range merged[i].Entries {
		if v, ok := diff.Get(e.ID); ok {
			merged[i].Entries[j].Value = v
		}
	}
	return root.Write(path, merged.String())
}

// differing keeps the wanted entries whose value is not in force.
func differing(now, want Line) (Line, error) {
	out := Line{Resource: want.Resource}
	for _, e := range want.Entries {
		v, ok := now.Get(e.ID)
		if !ok {
			return out, fmt.Errorf("%s has no id %d", want.Resource, e.ID)
		}
		if !sameValue(want.Resource, v, e.Value) {
			out.Entries = append(out.Entries, e)
		}
	}
	return out, nil
}

// sameValue compares as the kernel reads: masks are hexadecimal and may be padded, bandwidths decimal.
func sameValue(resource, a, b string) bool {
	if a == b {
		return true
	}
	base := 10
	if strings.HasPrefix(resource, "L") {
		base = 16
	}
	x, errX := strconv.ParseUint(strings.TrimPrefix(a, "0x"), base, 64)
	y, errY := strconv.ParseUint(strings.TrimPrefix(b, "0x"), base, 64)
	return errX == nil && errY == nil && x == y
}
