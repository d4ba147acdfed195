// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/netqos"
)

// wires are links of a test.
type wires struct {
	name   string
	has    map[string]string
	err    error
	synced []string
	looks  int
}

func (w *wires) Uplink() (string, unit.BitRate, error) { w.looks++; return w.name, 0, w.err }
func (w *wires) Tunnels() ([]string, error)            { return []string{"flannel.1 (vxlan)"}, nil }
func (w *wires) Shape(key string) (string, error) {
	text, ok := w.has[key]
	if !ok {
		return "", errors.New("refused")
	}
	return text, nil
}

func (w *wires) Sync(key string, pods []shape.Pod) (int, error) {
	w.synced = append(w.synced, key)
	return len(pods), w.err
}

// The links are looked at when something has changed, and after a while; in between the last look counts.
func TestLookAtLinks(t *testing.T) {
	t.Parallel()
	w := &wires{name: "eth0", has: map[string]string{"eth0/egress": "default", "eth1/egress": "htb incomplete"}}
	u := &uplink{do: w}
	now := unit.Second
	l := u.look(now, 0, followed{}, []netqos.Held{{Key: "eth1/egress"}})
	if l == nil || l.Name != "eth0" || l.Now["eth0/egress"] != "default" || l.Now["eth1/egress"] != "htb incomplete" || l.Why["eth0/ingress"] != "refused" || len(l.Tunnels) != 1 {
		t.Fatalf("%+v", l)
	}
	if u.look(now+unit.Second, 0, followed{ticks: 1}, nil) != nil {
		t.Error("looked again for nothing")
	}
	if u.look(now+unit.Second, 0, followed{pods: 1}, nil) == nil || u.look(now+12*unit.Second, 0, followed{pods: 1}, nil) == nil {
		t.Error("not looked again")
	}
	w.err = errors.New("no netlink")
	if l = u.look(now+30*unit.Second, 0, followed{}, nil); l.Name != "" || l.NoLink != "no netlink" || l.Speed != 0 {
		t.Errorf("%+v", l)
	}
	w.name, w.err = "", nil
	if l = u.look(now+60*unit.Second, 0, followed{}, nil); l.NoLink != "this node has no default route" || len(l.Now) != 0 {
		t.Errorf("%+v", l)
	}
	if (&uplink{}).look(now, 0, followed{}, nil) != nil {
		t.Error("without links")
	}
}

// What could not be set is told, left alone for a minute and then tried again; its pods are not touched.
func TestLinkThatCannotBeSet(t *testing.T) {
	t.Parallel()
	w := &wires{name: "eth0", has: map[string]string{"eth0/egress": "default", "eth0/ingress": "none"}}
	u := &uplink{do: w}
	now := unit.Second
	u.look(now, 0, followed{}, nil)
	set := plan.Setting{Knob: plan.NetShape, Key: "eth0/ingress"}
	u.wrote(&apply.Result{Setting: plan.Setting{Knob: plan.VMMinFree}, Err: errors.New("not ours")}, now)
	u.wrote(&apply.Result{Setting: set}, now)
	u.wrote(&apply.Result{Setting: set, Err: errors.New("no ifb")}, now)
	o := &netqos.Output{Directions: []netqos.Direction{{Key: "eth0/egress"}, {Key: "eth0/ingress"}}}
	if err := u.settle(o); err != nil || !slices.Equal(w.synced, []string{"eth0/egress"}) {
		t.Errorf("%v, %q", err, w.synced)
	}
	l := u.look(now+1, 0, followed{}, nil)
	if l == nil || l.Why["eth0/ingress"] != "no ifb" || l.Now["eth0/egress"] != "default" || len(l.Why) != 1 {
		t.Errorf("%+v", l)
	}
	if l = u.look(now+2*unit.Minute, 0, followed{}, nil); l.Now["eth0/ingress"] != "none" || len(l.Why) != 0 {
		t.Errorf("%+v", l)
	}
	w.err = errors.New("no class is left")
	if err := u.settle(o); err == nil {
		t.Error("no error")
	}
	w.err = nil
	if l = u.look(now+3*unit.Minute, 0, followed{}, nil); len(l.Notes) != 2 || !strings.Contains(l.Notes[0], "pods of eth0/egress: no class is left") {
		t.Errorf("%+v", l)
	}
}
