// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// queues are links by key; a nil error is none.
type queues struct {
	has  map[string]string
	fail error
	sets int
}

func (q *queues) Shape(key string) (string, error) {
	text, ok := q.has[key]
	if !ok {
		return "", unix.ENODEV
	}
	return text, nil
}

func (q *queues) SetShape(key, value string) error {
	q.sets++
	if q.fail == nil {
		q.has[key] = value
	}
	return q.fail
}

// linked is an applier over queues.
func linked(t *testing.T, q apply.Links) (*apply.Applier, *ledger) {
	t.Helper()
	m := newMachine(t, "6.12", func(o *apply.Options) { o.Links = q })
	return m.Applier, m.ledger
}

func shaped(key, value string) plan.Setting {
	return plan.Setting{Target: plan.Target{Level: plan.LevelNode}, Knob: plan.NetShape, Key: key, Value: plan.Text(value), Reason: "test"}
}

// A link is written once, with its original in the ledger, and restored from there while it still has our value.
func TestLinks(t *testing.T) {
	t.Parallel()
	const first, second = "htb total=8 system=8/8/0", "htb total=16 system=16/16/0"
	for name, tc := range map[string]struct {
		meanwhile string
		want      string
		action    apply.Action
	}{
		"restored":      {want: "qdisc fq 8001 AAAA", action: apply.ActWrite},
		"somebody else": {meanwhile: "qdisc fq 8002 BBBB", want: "qdisc fq 8002 BBBB", action: apply.ActKeep},
		"gone":          {meanwhile: "-", action: apply.ActKeep},
	} {
		q := &queues{has: map[string]string{"eth0/egress": "qdisc fq 8001 AAAA"}}
		a, l := linked(t, q)
		for i, value := range []string{first, first, second} {
			r := a.Apply(t.Context(), plan.Plan{shaped("eth0/egress", value)}, 1)[0]
			want := apply.Written
			if i == 1 {
				want = apply.Unchanged
			}
			if r.Outcome != want || r.Err != nil || q.has["eth0/egress"] != value {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if q.sets != 2 || len(a.Verify(plan.Plan{shaped("eth0/egress", second)})) != 0 || len(a.Verify(plan.Plan{shaped("eth0/egress", first)})) != 1 {
			t.Errorf("%s: %d writes", name, q.sets)
		}
		records := l.all()
		if len(records) == 0 || records[0].Original[0] != "qdisc fq 8001 AAAA" || records[0].Inode != 0 || records[0].Key != "eth0/egress" || records[0].Via != journal.ViaDirect {
			t.Fatalf("%s: %+v", name, records)
		}
		switch tc.meanwhile {
		case "":
		case "-":
			delete(q.has, "eth0/egress")
		default:
			q.has["eth0/egress"] = tc.meanwhile
		}
		for _, dry := range []bool{true, false} {
			steps := a.Restore(t.Context(), l.all(), dry)
			if len(steps) != 1 || steps[0].Action != tc.action {
				t.Errorf("%s: %+v", name, steps)
			}
		}
		if q.has["eth0/egress"] != tc.want {
			t.Errorf("%s: %q", name, q.has)
		}
	}
}

// What the kernel cannot, and what is not there, is told as such; without links nobody pretends.
func TestLinkErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fail error
		key  string
		want error
	}{
		"no such qdisc": {unix.ENOENT, "eth0/egress", apply.ErrUnsupported},
		"no such kind":  {unix.EOPNOTSUPP, "eth0/egress", apply.ErrUnsupported},
		"no such link":  {nil, "eth1/egress", apply.ErrGone},
	} {
		a, l := linked(t, &queues{has: map[string]string{"eth0/egress": "default"}, fail: tc.fail})
		if r := a.Apply(t.Context(), plan.Plan{shaped(tc.key, "htb total=8 system=8/8/0")}, 1)[0]; !errors.Is(r.Err, tc.want) {
			t.Errorf("%s: %+v", name, r)
		}
		if steps := a.Restore(t.Context(), l.all(), false); len(steps) > 1 || len(steps) == 1 && steps[0].Action == apply.ActWrite {
			t.Errorf("%s: %+v", name, steps)
		}
	}
	a, _ := linked(t, nil)
	if r := a.Apply(t.Context(), plan.Plan{shaped("eth0/egress", "htb total=8 system=8/8/0")}, 1)[0]; !errors.Is(r.Err, apply.ErrUnsupported) {
		t.Errorf("without links: %+v", r)
	}
}
