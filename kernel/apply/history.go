// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// history is what the ledger tells of one knob of one cgroup since it was last restored.
type history struct {
	id plan.ID
	// first is our first write, ours is the last record of a write that succeeded. Either may be nil.
	first, ours *journal.Record
	// runtime is the last value that the runtime took into its record for us, before the one that differs, which that record still has where
	// the last was refused. A restore of the kernel's file leaves both.
	runtime, before *journal.Record
	// theirs is the newest write over a value of somebody else's, which is the original since then.
	theirs *journal.Record
	// beside is the newest record of what systemd may have written by our doing; besideLast: we have written nothing since.
	beside     *journal.Record
	besideLast bool
	// recent are the newest of ours since theirs, oldest first: no two wrote the same, and there are journal.Recent at most, as
	// compaction keeps no more.
	recent []write
}

// write is one of ours; back: it gave a value back.
type write struct {
	*journal.Record
	back bool
}

// identity leaves out a target's names, which differ between the processes that write ledgers.
type identity struct {
	level  plan.Level
	cgroup string
	knob   plan.Knob
	key    string
}

func identityOf(id plan.ID) identity {
	return identity{id.Target.Level, id.Target.Cgroup, id.Knob, id.Key}
}

// histories groups records by knob, oldest knob last, and drops those of other boots and of directories that were
// removed or made anew.
//
// originals is the oldest content of every file: knobs share files (quota and period, one line per device), and setting
// cpu.idle takes cpu.weight along.
func (a *Applier) histories(records []journal.Record) (out []history, originals map[string]string) {
	found := map[identity]*history{}
	originals = map[string]string{}
	inodes := map[string]uint64{}
	var order []identity
	refused := takenBack(records)
	for i := range records {
		r := &records[i]
		id, ok := r.ID()
		if refused[i] || !ok || r.Boot != a.boot || !a.sameInode(r, id.Knob, inodes) {
			continue
		}
		key := identityOf(id)
		h := found[key]
		if h == nil {
			h = &history{}
			found[key] = h
			order = append(order, key)
		}
		h.id = id
		if a.isTheirs(h, r) {
			h.theirs, h.recent = r, nil // none of ours before stands any more
		}
		h.add(r, a.isBack(h, r, originals))
		keep(originals, r)
		if r.Via == journal.ViaRestore && r.Err == "" {
			a.restoredAlong(found, h, r.Files)
		}
	}
	for i := len(order) - 1; i >= 0; i-- {
		out = append(out, *found[order[i]])
	}
	return out, originals
}

// takenBack are the writes and restores, by their places, that a later record of their knob says were refused: they were recorded before
// they were tried. What a refused restore was to end goes on, so that it can be tried again; a refused write has never been.
func takenBack(records []journal.Record) map[int]bool {
	type tried struct{ restore, write int } // places, -1 for none
	out, last := map[int]bool{}, map[identity]tried{}
	for i := range records {
		r := &records[i]
		if r.Via != journal.ViaRestore && r.Via != journal.ViaDirect && r.Via != journal.ViaRuntime {
			continue
		}
		id, ok := r.ID()
		if !ok {
			continue
		}
		key := identityOf(id)
		at, known := last[key]
		if !known {
			at = tried{-1, -1}
		}
		switch {
		case r.Via == journal.ViaRestore && r.Err == "":
			at = tried{i, -1}
		case r.Via == journal.ViaRestore:
			if at.restore >= 0 {
				out[at.restore] = true
			}
			at.restore = -1
		default:
			at.restore = -1
			if len(r.Written) > 0 {
				at.write = i
			} else if at.write >= 0 && r.TakesBack(&records[at.write]) {
				out[at.write] = true
				at.write = -1
			}
		}
		last[key] = at
	}
	return out
}

// restoredAlong ends the histories of knobs whose files a restore of another knob has put back too: a weight, beside cpu.idle.
func (a *Applier) restoredAlong(found map[identity]*history, h *history, files []string) {
	main := h.file(a)
	for _, other := range found {
		if file := other.file(a); other != h && file != main && slices.Contains(files, file) {
			other.restored()
		}
	}
}

// keep remembers the content of files that no older record has, and forgets what was restored since.
func keep(originals map[string]string, r *journal.Record) {
	for i, f := range r.Files {
		switch _, known := originals[f]; {
		case r.Via == journal.ViaRestore && r.Err == "":
			delete(originals, f)
		case (r.Via == journal.ViaDirect || r.Via == journal.ViaBeside) && !known && i < len(r.Original):
			originals[f] = r.Original[i]
		}
	}
}

// sameInode reports whether the record's directory still is the one that stands there. A runtime's record of a container
// that did not exist yet has no inode; its path holds the container's id, which is never reused, so that it counts while it is there. inodes remembers those that
// were looked up, 0 for a directory that is not there.
func (a *Applier) sameInode(r *journal.Record, k plan.Knob, inodes map[string]uint64) bool {
	if hasNoInode(k) {
		return true // there is one node
	}
	if r.Inode == 0 && r.Target.Level != plan.LevelContainer {
		return false
	}
	dir, err := a.dirOf(r.Target, k)
	if err != nil {
		return false
	}
	inode, known := inodes[dir]
	if !known {
		if inode, err = root.Inode(dir); err != nil {
			inode = 0
		}
		inodes[dir] = inode
	}
	if r.Inode == 0 {
		return inode != 0
	}
	return inode == r.Inode
}

// isTheirs reports whether a record found a value of somebody else's: its writer did not know it for its own, and neither another process
// of ours nor the runtime for us has written it last. An older release's writer knew its last value only, and did not say what it found:
// of its records the older values that compaction has kept are asked, too.
func (a *Applier) isTheirs(h *history, r *journal.Record) bool {
	if r.Via != journal.ViaDirect || !r.Theirs || len(r.Written) == 0 {
		return false
	}
	if r.Judged {
		return true
	}
	found, err := a.textOf(h, pick(r.Files, r.Original, h.file(a)))
	if err != nil || a.holdsOurs(*h, found) {
		return false
	}
	if r.Found != "" {
		return true
	}
	return !(h.first != nil && a.wrote(h, h.first, found)) &&
		!slices.ContainsFunc(h.recent, func(w write) bool { return !w.back && a.wrote(h, w.Record, found) })
}

// isBack reports whether a record is of a write that gave a value back: it is not ours then, and where somebody sets it after
// other values it is the original again.
func (a *Applier) isBack(h *history, r *journal.Record, originals map[string]string) bool {
	if r.Via != journal.ViaDirect || len(r.Written) == 0 || h.first == nil || h.id.Knob.OfProcesses() {
		return false
	}
	text, ok := h.original(originals, h.file(a))
	if !ok {
		return false
	}
	original, err := a.textOf(h, text)
	return err == nil && a.wrote(h, r, original)
}

// textOf is what a file of the history's knob says, as far as it is the knob's.
func (a *Applier) textOf(h *history, text string) (plan.Value, error) {
	switch k := h.id.Knob; {
	case k == plan.RDTSchemata:
		return plan.Text(strings.TrimPrefix(text, h.id.Key+":")), nil
	case !isCgroupKnob(k):
		return plan.Text(text), nil
	}
	return a.o.FS.Parse(h.id, []byte(text))
}

// wrote reports whether a record wrote a value.
func (a *Applier) wrote(h *history, r *journal.Record, v plan.Value) bool {
	text := writtenTo(r, h.file(a))
	switch k := h.id.Knob; {
	case k == plan.RDTSchemata:
		return sameDomains(h.id.Key, text, v.String()) // a record may name fewer domains than there are
	case !isCgroupKnob(k):
		return text == v.String()
	}
	w, err := a.o.FS.Parse(h.id, []byte(text))
	return err == nil && a.o.FS.Same(plan.Setting{Target: h.id.Target, Knob: h.id.Knob, Key: h.id.Key, Value: w}, v)
}

// add takes one record in, of a write that was not refused; back: it gave a value back.
func (h *history) add(r *journal.Record, back bool) {
	switch r.Via {
	case journal.ViaRestore:
		if r.Err == "" {
			h.restored()
		}
	case journal.ViaTold:
		h.runtime, h.before = nil, nil
	case journal.ViaRuntime:
		if r.Err != "" {
			return
		}
		if h.runtime != nil && h.runtime.Want != r.Want {
			h.before = h.runtime
		}
		h.runtime = r
	case journal.ViaBeside:
		h.beside, h.besideLast = r, true
	case journal.ViaDirect:
		if len(r.Written) == 0 {
			return
		}
		h.besideLast = false
		if h.first == nil {
			h.first = r
		}
		h.ours = r
		h.recent = append(slices.DeleteFunc(h.recent, func(w write) bool { return slices.Equal(w.Written, r.Written) }), write{r, back})
		h.recent = h.recent[max(len(h.recent)-journal.Recent, 0):]
	}
}

// restored forgets all but what the runtime's record has, if it can be told to have otherwise.
func (h *history) restored() {
	was := *h
	if *h = (history{id: h.id}); h.id.InRuntime() {
		h.runtime, h.before = was.runtime, was.before
	}
}

// mayStand are the records of ours one of which the kernel has: the last, and the one before it that wrote another value and gave nothing
// back, in case we were killed between recording and writing. Each process has its own value, so of these there is the last only.
func (h *history) mayStand() []*journal.Record {
	if h.ours == nil {
		return nil
	}
	out := []*journal.Record{h.ours}
	if h.id.Knob.OfProcesses() {
		return out
	}
	for i := len(h.recent) - 1; i >= 0; i-- {
		if w := h.recent[i]; !w.back && w.Record != h.ours {
			return append(out, w.Record)
		}
	}
	return out
}

// original is what somebody else has put into the knob's file since, else the oldest content of the file, else that of the
// knob's own first record. What a file has of one line of schemata is that record's alone.
func (h *history) original(originals map[string]string, file string) (string, bool) {
	if h.theirs != nil {
		if i := slices.Index(h.theirs.Files, file); i >= 0 && i < len(h.theirs.Original) {
			return h.theirs.Original[i], true
		}
	}
	if o, ok := originals[file]; ok && isCgroupKnob(h.id.Knob) {
		return o, true
	}
	if h.first != nil {
		if i := slices.Index(h.first.Files, file); i >= 0 && i < len(h.first.Original) {
			return h.first.Original[i], true
		}
	}
	return "", false
}

// file is the knob's own file, as opposed to one that moves along with it.
func (h *history) file(a *Applier) string {
	switch {
	case isLinkKnob(h.id.Knob):
		return linkFile(h.id.Key)
	case h.id.Knob == plan.RDTSchemata:
		return a.schemataFile(h.id.Target.Cgroup)
	}
	path, err := a.o.FS.Path(h.id.Target, h.id.Knob)
	if err != nil {
		return ""
	}
	return path
}

func writtenTo(r *journal.Record, file string) string { return pick(r.Files, r.Written, file) }

func pick(files, values []string, file string) string {
	for i, f := range files {
		if f == file && i < len(values) {
			return values[i]
		}
	}
	return ""
}

// valueOf reads a record's Want or Base back into a value.
func valueOf(k plan.Knob, text string) (plan.Value, error) {
	if k.Info().Text {
		return plan.Text(text), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return plan.Value{}, fmt.Errorf("read %s from the ledger: %q is not a number", k, text)
	}
	return plan.Int(n), nil
}
