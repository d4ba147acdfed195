// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// lives are processes of ours, one after the other, on one machine.
type lives struct {
	t       *testing.T
	machine *machine
	options apply.Options
	now     *apply.Applier
	link    *queues
	// dead: the process is killed before its next write, which it has recorded.
	dead bool
}

func newLives(t *testing.T) *lives {
	t.Helper()
	l := &lives{t: t, link: &queues{has: map[string]string{}}}
	l.machine = newMachine(t, "6.12", func(o *apply.Options) {
		o.Writer = mortalWriter{o.Writer, l}
		o.Groups = mortalGroups{o.Groups, l}
		o.Links = mortalLinks{l.link, l}
		l.options = *o
	})
	l.machine.Resctrl(t, true, true)
	l.machine.Group(t, "BE")
	l.now = l.machine.Applier
	return l
}

type mortalWriter struct {
	apply.Writer
	*lives
}

func (w mortalWriter) Write(path, value string, nonblock bool) error {
	if w.dead {
		return nil
	}
	return w.Writer.Write(path, value, nonblock)
}

type mortalGroups struct {
	apply.Groups
	*lives
}

func (g mortalGroups) SetSchemata(group, line string) error {
	if g.dead {
		return nil
	}
	return g.Groups.SetSchemata(group, line)
}

type mortalLinks struct {
	apply.Links
	*lives
}

func (q mortalLinks) SetShape(key, value string) error {
	if q.dead {
		return nil
	}
	return q.Links.SetShape(key, value)
}

// next is the following process, which has read the ledger.
func (l *lives) next() *apply.Applier {
	l.t.Helper()
	a, err := apply.New(l.options)
	if err != nil {
		l.t.Fatal(err)
	}
	l.dead = false
	return a
}

// knob is one knob of the machine in the words of the tables below: A is what stands there at first, B and C are somebody else's,
// X and Y ours, D is what the kernel gives a new one.
type knob struct {
	says   map[string]string
	set    func(value string) plan.Setting
	get    func() string
	put    func(text string)
	remake func()
}

// knobs are one of each kind that a restore returns to an original.
func knobs(l *lives) map[string]knob {
	m, t := l.machine, l.t
	group := plan.Target{Level: plan.LevelGroup, Cgroup: "BE"}
	return map[string]knob{
		"link": {
			says: map[string]string{
				"A": "qdisc fq 8001 AAAA", "B": "qdisc pfifo 8002 BBBB", "C": "qdisc tbf 8003 CCCC", "D": "default",
				"X": "htb total=8 system=8/8/0", "Y": "htb total=16 system=16/16/0",
			},
			set:    func(value string) plan.Setting { return shaped("eth0/egress", value) },
			get:    func() string { return l.link.has["eth0/egress"] },
			put:    func(text string) { l.link.has["eth0/egress"] = text },
			remake: func() { l.link.has["eth0/egress"] = "default" },
		},
		"schemata": {
			says: map[string]string{"A": "0=ff;1=ff", "B": "0=3ff;1=ff", "C": "0=7;1=fff", "D": "0=fffff;1=fffff", "X": "0=f;1=f", "Y": "0=3;1=3"},
			set: func(value string) plan.Setting {
				return plan.Setting{Target: group, Knob: plan.RDTSchemata, Key: "L3", Value: plan.Text(value), Reason: "test"}
			},
			get: func() string {
				text, err := m.groups.Schemata("BE")
				if err != nil {
					t.Fatal(err)
				}
				_, line, _ := strings.Cut(text, "L3:")
				return strings.TrimSuffix(line, "\n")
			},
			put: func(text string) {
				if err := m.groups.SetSchemata("BE", "L3:"+text); err != nil {
					t.Fatal(err)
				}
			},
			remake: func() { m.groups.remake(t, "BE") },
		},
		"cgroup file": {
			says: map[string]string{"A": "4096", "B": "8192", "C": "12288", "D": "0", "X": "40960", "Y": "81920"},
			set: func(value string) plan.Setting {
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return set(pod, plan.MemoryLow, plan.Int(n))
			},
			get:    func() string { return m.Get(t, pod, "memory.low") },
			put:    func(text string) { m.Set(t, pod, "memory.low", text) },
			remake: func() { m.Rmdir(t, pod); m.Mkdir(t, pod) },
		},
	}
}

// What a restore returns to is what somebody else has set last, whatever we did and gave back in between, over restarts and kills.
func TestRestoreReturnsToTheLastOfTheirs(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		// steps: "ours X" writes it and "back A" gives back; "killed ours X" dies between record and write, and the next life goes on;
		// "them B" is somebody else; "restart", "heir" (the Applier is made anew), "remade" and "restore" are what they say.
		steps, want string
	}{
		{"nobody else", "ours X, ours Y", "A"},
		{"set after a give-back", "ours X, back A, them B, ours X", "B"},
		{"set twice after give-backs", "ours X, back A, them B, ours X, back B, them C, ours Y", "C"},
		{"the first again", "ours X, back A, them B, ours X, back B, them A, ours X", "A"},
		{"nothing set after a give-back", "ours X, back A, ours X", "A"},
		{"given back", "ours X, back A", "A"},
		{"given back and set", "ours X, back A, them B", "B"},
		{"set while ours", "ours X, them B, ours X, ours Y", "B"},
		{"an older one of ours", "ours X, ours Y, them X, ours Y", "A"},
		{"not ours any more", "ours X, them B", "B"},
		{"restored between", "ours X, restore, them B, ours X", "B"},
		{"restart after the give-back", "ours X, back A, restart, them B, ours X", "B"},
		{"restart before ours", "ours X, back A, them B, restart, ours X", "B"},
		{"restart after ours", "ours X, back A, them B, ours X, restart, ours Y", "B"},
		{"an heir", "ours X, back A, heir, them B, heir, ours X, heir, ours Y", "B"},
		{"restart in between, the first", "ours X, back A, restart, ours X, restart, back A, restart, ours X", "A"},
		{"set while nobody ran", "ours X, restart, them B, ours X", "B"},
		{"killed giving back", "ours X, killed back A", "A"},
		{"killed giving back, ours again", "ours X, killed back A, ours X", "A"},
		{"killed giving back, another", "ours X, killed back A, ours Y", "A"},
		{"killed giving back, then given", "ours X, killed back A, back A, them B, ours X", "B"},
		{"killed over theirs", "ours X, back A, them B, killed ours X", "B"},
		{"killed over theirs, ours again", "ours X, back A, them B, killed ours X, ours X", "B"},
		{"killed before another of ours", "ours X, killed ours Y", "A"},
		{"killed, and the other then", "ours X, killed ours Y, ours Y", "A"},
		{"killed before another, then theirs", "ours X, killed ours Y, them B, ours Y", "B"},
		{"made anew", "ours X, remade, ours X", "D"},
		{"made anew while nobody ran", "ours X, back A, them B, ours X, remade, restart, ours X", "D"},
	}
	for _, kind := range []string{"link", "schemata", "cgroup file"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newLives(t) // one tree for all: each begins with a ledger and an Applier of its own
			k := knobs(l)[kind]
			for _, c := range cases {
				l.machine.ledger.records = nil
				l.now = l.next()
				k.put(k.says["A"])
				if kind == "schemata" { // another line of the same file
					other := k.set("0=50")
					other.Key = "MB"
					l.now.Apply(t.Context(), plan.Plan{other}, 1)
				}
				for _, step := range strings.Split(c.steps, ", ") {
					l.step(&k, step)
				}
				l.returns(&k, c.name, c.steps, c.want)
			}
		})
	}
}

// returns restores, which returns to what is wanted, and writes nothing where that stands, as it does the second time.
func (l *lives) returns(k *knob, name, steps, want string) {
	l.t.Helper()
	for range 2 {
		there, writes := k.get() == k.says[want], 0
		for _, s := range l.next().Restore(l.t.Context(), l.machine.ledger.all(), false) {
			if s.Err != nil {
				l.t.Errorf("%s: %s: %v", name, s.Reason, s.Err)
			}
			if s.Action == apply.ActWrite && s.Key != "MB" {
				writes++
			}
		}
		if got := k.get(); got != k.says[want] || there && writes > 0 {
			l.t.Errorf("%s: after %s a restore of %d writes returns to %q, want %s, %q; ledger:\n%s", name, steps, writes, got, want,
				k.says[want], strings.Join(l.machine.ledger.lines(0), "\n"))
			return
		}
	}
}

// step performs one step of a table.
func (l *lives) step(k *knob, step string) {
	l.t.Helper()
	words := strings.Fields(step)
	if l.dead = words[0] == "killed"; l.dead {
		words = words[1:]
	}
	killed := l.dead
	switch words[0] {
	case "ours", "back":
		if r := l.now.Apply(l.t.Context(), plan.Plan{k.set(k.says[words[1]])}, 1)[0]; r.Err != nil {
			l.t.Fatalf("%s: %v", step, r.Err)
		}
	case "them":
		k.put(k.says[words[1]])
	case "remade":
		k.remake()
	case "restart":
		killed = true
	case "heir":
		a := l.next()
		a.Inherit(l.now)
		l.now = a
	case "restore":
		l.next().Restore(l.t.Context(), l.machine.ledger.all(), false)
	default:
		l.t.Fatalf("no such step: %q", step)
	}
	if killed {
		l.now = l.next()
		l.now.Recall(l.machine.ledger.all())
	}
}

// What an earlier life was killed at stands all the same, and is told with its original; so it can be given back.
func TestRecallAfterAKill(t *testing.T) {
	t.Parallel()
	l := newLives(t)
	k := knobs(l)["cgroup file"]
	k.put(k.says["A"])
	l.step(&k, "ours X")
	l.step(&k, "killed ours Y")
	got := l.next().Recall(l.machine.ledger.all())
	if len(got) != 1 || got[0].Value != plan.Int(40960) || !got[0].Known || got[0].Original != plan.Int(4096) {
		t.Errorf("%+v, want 40960 in the place of 4096", got)
	}
}

// A shape that a process has left half made is ours, and so it is for a later one that goes on.
func TestRestoreOfAHalfMadeShape(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"restart", "ours Y"} {
		l := newLives(t)
		k := knobs(l)["link"]
		k.put(k.says["A"])
		l.step(&k, "killed ours X")
		k.put("htb incomplete")
		l.step(&k, then)
		l.returns(&k, "half made", then, "A")
	}
}

// A link that has vanished is left out, and its name is somebody else's when it comes again.
func TestRestoreOfAVanishedLink(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{"", "gone"} { // an error, and how kernel/tc tells it
		l := newLives(t)
		k := knobs(l)["link"]
		k.put(k.says["A"])
		l.step(&k, "ours X")
		if k.put(gone); gone == "" {
			delete(l.link.has, "eth0/egress")
		}
		l.link.fail = apply.ErrGone
		if r := l.now.Apply(t.Context(), plan.Plan{k.set(k.says["Y"])}, 1)[0]; r.Err == nil {
			t.Error("a shape on a link that is not there")
		}
		l.link.fail = nil
		for _, s := range l.next().Restore(t.Context(), l.machine.ledger.all(), false) {
			if s.Action == apply.ActWrite {
				t.Errorf("%q: %+v", gone, s)
			}
		}
		k.put(k.says["B"])
		l.step(&k, "ours Y")
		l.returns(&k, "vanished", "gone and back with another", "B")
	}
}

// A link that vanishes after it was given back, and comes again as it was: what it had while it was away is nothing to return to.
func TestRestoreOfALinkThatCameAgain(t *testing.T) {
	t.Parallel()
	l := newLives(t)
	k := knobs(l)["link"]
	k.put(k.says["A"])
	l.step(&k, "ours X")
	l.step(&k, "back A")
	k.put("gone")
	l.link.fail = apply.ErrGone
	if r := l.now.Apply(t.Context(), plan.Plan{k.set(k.says["X"])}, 1)[0]; r.Err == nil {
		t.Error("a shape on a link that is not there")
	}
	l.link.fail = nil
	k.put(k.says["A"])
	l.step(&k, "ours X")
	l.returns(&k, "came again", "back, gone, ours", "A")
}
