// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package netqos_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/netqos"
)

func percent(n int64) *strategy.IntOrString  { return &strategy.IntOrString{Int: n} }
func bits(text string) *strategy.IntOrString { return &strategy.IntOrString{IsString: true, Str: text} }

// qos enables a class with egress shares; ingress has the documented defaults.
func qos(request, limit *strategy.IntOrString) *strategy.ResourceQOS {
	return &strategy.ResourceQOS{NetworkQOS: &strategy.NetworkQOS{
		Enable: new(true), EgressRequest: request, EgressLimit: limit, IngressRequest: percent(0), IngressLimit: percent(100),
	}}
}

// spec is a strategy with a total of 10 Gbit/s and no class enabled.
func spec(lsr, ls, be *strategy.ResourceQOS) *strategy.Spec {
	s := strategy.Default()
	q := s.ResourceQOSStrategy
	for to, from := range map[**strategy.ResourceQOS]*strategy.ResourceQOS{&q.LSRClass: lsr, &q.LSClass: ls, &q.BEClass: be} {
		if from != nil {
			*to = from
		}
	}
	s.SystemStrategy.TotalNetworkBandwidth = new(strategy.Quantity("10G"))
	return &s
}

func link() *netqos.Link {
	return &netqos.Link{Name: "eth0", Now: map[string]string{"eth0/egress": "default", "eth0/ingress": "none"}, Why: map[string]string{}}
}

// values renders a plan.
func values(out *netqos.Output) string {
	var all []string
	for i := range out.Plan {
		all = append(all, out.Plan[i].Key+"="+out.Plan[i].Value.String())
	}
	return strings.Join(all, "; ")
}

func egress(text string) string {
	return strings.ReplaceAll("eth0/egress=htb total=10G "+text, "G", "000000000")
}

func TestShares(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec    *strategy.Spec
		link    func(*netqos.Link)
		note    unit.BitRate
		want    string
		problem string
		missing string
	}{
		"off by default":      {spec: spec(nil, nil, nil)},
		"nothing asked":       {spec: spec(nil, nil, qos(percent(0), percent(100)))},
		"documented example":  {spec: spec(nil, qos(percent(40), percent(100)), qos(percent(10), bits("3G"))), want: egress("system=5G/10G/0 ls=4G/10G/2 be=1G/3G/3")},
		"all classes":         {spec: spec(qos(percent(30), percent(100)), qos(bits("2G"), percent(80)), qos(percent(0), percent(50))), want: egress("system=5G/10G/0 lsr=3G/10G/1 ls=2G/8G/2 be=64000/5G/3")},
		"a limit above all":   {spec: spec(nil, nil, qos(percent(10), bits("40G"))), want: egress("system=9G/10G/0 be=1G/10G/3")},
		"request above limit": {spec: spec(nil, nil, qos(percent(50), percent(20))), want: egress("system=8G/10G/0 be=2G/2G/3"), problem: "resourceQOSStrategy.beClass.networkQOS.egressRequest: 5 Gbit/s is more than the limit"},
		"limit 0":             {spec: spec(nil, nil, qos(percent(10), percent(0))), want: egress("system=9G/10G/0 be=1G/10G/3"), problem: "beClass.networkQOS.egressLimit: 0 would stop the class"},
		"tiny limit":          {spec: spec(nil, nil, qos(percent(0), bits("8"))), want: egress("system=10G/10G/0 be=64000/64000/3")},
		"too much together": {
			spec: spec(qos(percent(100), percent(100)), qos(percent(60), percent(100)), qos(percent(40), percent(100))),
			want: "eth0/egress=htb total=10000000000 system=100000000/10000000000/0 lsr=4950000000/10000000000/1 ls=2970000000/10000000000/2 be=1980000000/10000000000/3", problem: "egress requests are 20 Gbit/s together: cut in proportion to 9.9 Gbit/s",
		},
		"no percentage": {spec: spec(nil, nil, qos(percent(101), percent(50))), want: egress("system=10G/10G/0 be=64000/5G/3"), problem: "egressRequest: 101 is no percentage"},
		"no quantity":   {spec: spec(nil, nil, qos(bits("fast"), percent(50))), want: egress("system=10G/10G/0 be=64000/5G/3"), problem: "egressRequest: bad quantity"},
		"annotation":    {spec: spec(nil, nil, qos(percent(10), percent(50))), note: 1e9, want: "eth0/egress=htb total=1000000000 system=900000000/1000000000/0 be=100000000/500000000/3"},
		"speed of link": {spec: spec(nil, nil, qos(percent(10), percent(50))), link: func(l *netqos.Link) { l.Speed = 1e9 }, want: "eth0/egress=htb total=1000000000 system=900000000/1000000000/0 be=100000000/500000000/3", problem: "systemStrategy.totalNetworkBandwidth: 10 Gbit/s is more than eth0 has: held at 1 Gbit/s"},
		"a slip":        {spec: spec(nil, nil, qos(percent(10), percent(50))), note: 25000, missing: "25 kbit/s would cut the node off"},
		"no link":       {spec: spec(nil, nil, qos(percent(10), percent(50))), link: func(l *netqos.Link) { l.Name, l.NoLink = "", "no default route" }, missing: "no default route"},
	} {
		in := netqos.Input{Strategy: tc.spec, Link: link(), Bandwidth: tc.note}
		if tc.link != nil {
			tc.link(in.Link)
		}
		_, out := netqos.Step(netqos.State{}, in)
		got := values(&out)
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		if len(out.Problems) == 0 != (tc.problem == "") || !strings.Contains(strings.Join(out.Problems, "\n"), tc.problem) {
			t.Errorf("%s: problems %q", name, out.Problems)
		}
		if out.Missing == "" != (tc.missing == "") || !strings.Contains(out.Missing, tc.missing) {
			t.Errorf("%s: missing %q", name, out.Missing)
		}
		if got != "" && (out.Plan[0].Reason == "" || out.Plan[0].Owner != protocol.FeatureNetwork) {
			t.Errorf("%s: %s", name, &out.Plan[0])
		}
	}
	unknown := spec(nil, nil, qos(percent(10), percent(50)))
	unknown.SystemStrategy.TotalNetworkBandwidth = new(strategy.Quantity("0"))
	if _, out := netqos.Step(netqos.State{}, netqos.Input{Strategy: unknown, Link: link()}); !strings.Contains(out.Missing, "the bandwidth of eth0 is not known") {
		t.Errorf("%q", out.Missing)
	}
}

// Whatever is asked: a Shape that a kernel can have, guarantees that fit in the total, and something left for the system.
func TestAnyStrategyGivesAShape(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(4, 5))
	amount := func() *strategy.IntOrString {
		if rnd.IntN(2) == 0 {
			return percent(rnd.Int64N(140) - 20)
		}
		return bits(fmt.Sprint(rnd.Int64N(1 << (1 + rnd.IntN(62)))))
	}
	for range 3000 {
		s := spec(qos(amount(), amount()), qos(amount(), amount()), qos(amount(), amount()))
		total := unit.BitRate(rnd.Int64N(1 << (20 + rnd.IntN(43))))
		_, out := netqos.Step(netqos.State{}, netqos.Input{Strategy: s, Link: link(), Bandwidth: total})
		for i := range out.Directions {
			d := &out.Directions[i].Shape
			var sum unit.BitRate
			for _, c := range d.Classes {
				sum += c.Rate
			}
			if err := d.Check(); err != nil || sum > d.Total+4*64_000 || d.Classes[0].Rate < d.Total/100-8 {
				t.Fatalf("%d: %s: %v", total, d, err)
			}
			if back, err := shape.Parse(d.String()); err != nil || back.String() != d.String() {
				t.Fatalf("%s: %v", d, err)
			}
		}
	}
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestPods(t *testing.T) {
	t.Parallel()
	limits := func(in, out int64) *protocol.NetworkQOS {
		return &protocol.NetworkQOS{IngressLimit: in, EgressLimit: out}
	}
	in := netqos.Input{
		Strategy: spec(qos(percent(30), percent(100)), nil, qos(percent(0), percent(50))), Link: link(),
		Pods: []netqos.Pod{
			{Name: "a/lse", Class: protocol.QoSLSE, Addresses: addrs("10.0.0.1", "fd00::1")},
			{Name: "a/ls", Class: protocol.QoSLS, Addresses: addrs("10.0.0.2")},
			{Name: "a/ls-limited", Class: protocol.QoSLS, Addresses: addrs("10.0.0.3"), Limits: limits(50e6, 20e6)},
			{Name: "a/be", Class: protocol.QoSBE, Addresses: addrs("10.0.0.4")},
			{Name: "a/be-limited", Class: protocol.QoSBE, Addresses: addrs("10.0.0.5"), Limits: limits(0, 1e9)},
			{Name: "a/be-wide", Class: protocol.QoSBE, Addresses: addrs("10.0.0.6"), Limits: limits(0, 6e9)},
			{Name: "a/host", Class: protocol.QoSBE, Addresses: addrs("192.168.0.1"), HostNetwork: true},
			{Name: "a/host-system", Class: protocol.QoSSystem, HostNetwork: true},
			{Name: "a/new", Class: protocol.QoSBE},
			{Name: "a/twin", Class: protocol.QoSBE, Addresses: addrs("10.0.0.7", "10.0.0.4")},
		},
	}
	_, out := netqos.Step(netqos.State{}, in)
	render := func(d *netqos.Direction) string {
		var all []string
		for _, p := range d.Pods {
			all = append(all, fmt.Sprintf("%s %s %d %d", p.Name, p.Class, p.Limit, len(p.Addresses)))
		}
		return strings.Join(all, ", ")
	}
	if len(out.Directions) != 2 {
		t.Fatalf("%+v", out)
	}
	if got, want := render(&out.Directions[0]), "a/lse lsr 0 2, a/ls-limited system 20000000 1, a/be be 0 1, a/be-limited be 1000000000 1, a/be-wide be 0 1"; got != want {
		t.Errorf("egress: %s, want %s", got, want)
	}
	if got, want := render(&out.Directions[1]), "a/lse lsr 0 2, a/ls-limited system 50000000 1, a/be be 0 1, a/be-limited be 0 1, a/be-wide be 0 1"; got != want {
		t.Errorf("ingress, for one limit: %s, want %s", got, want)
	}
	if all := strings.Join(out.Limited, "\n"); !strings.Contains(all, "1 pod with the node's address") || !strings.Contains(all, "1 pod without a known address") {
		t.Errorf("%q", out.Limited)
	}
	if len(out.Problems) != 1 || out.Problems[0] != "pod a/twin: has the address 10.0.0.4 of pod a/be and counts as that one" {
		t.Errorf("%q", out.Problems)
	}
	in.Link.Tunnels = []string{"flannel.1 (vxlan)"}
	if _, out = netqos.Step(netqos.State{}, in); !strings.Contains(strings.Join(out.Limited, "\n"), "what goes by flannel.1 (vxlan) has the node's address on eth0") {
		t.Errorf("%q", out.Limited)
	}
}

// What is ours is held over steps and lives, and goes back whatever the end is.
func TestGivesBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before   map[string]string
		original string
		end      func(*netqos.Input)
	}{
		"disabled":           {original: "default", end: func(in *netqos.Input) { in.Strategy = spec(nil, nil, nil) }},
		"off":                {original: "default", end: func(in *netqos.Input) { in.Off = "the feature network-qos is not active on this node" }},
		"another qdisc":      {before: map[string]string{"eth0/egress": "qdisc fq 8001 AAAA"}, original: "qdisc fq 8001 AAAA", end: func(in *netqos.Input) { in.Strategy = nil }},
		"state was lost":     {before: map[string]string{"eth0/egress": "htb incomplete"}, original: "default", end: func(in *netqos.Input) { in.Strategy = nil }},
		"another uplink":     {original: "default", end: func(in *netqos.Input) { in.Link.Name = "eth1" }},
		"no uplink any more": {original: "default", end: func(in *netqos.Input) { in.Link.Name = "" }},
	} {
		in := netqos.Input{Strategy: spec(nil, nil, qos(percent(10), percent(50))), Link: link()}
		maps.Copy(in.Link.Now, tc.before)
		s, out := netqos.Step(netqos.State{}, in)
		if len(out.Plan) != 1 || !slices.Equal(s.Held, []netqos.Held{{Key: "eth0/egress", Original: tc.original}}) {
			t.Errorf("%s: %s, %+v", name, values(&out), s)
			continue
		}
		in.Link.Now["eth0/egress"] = out.Plan[0].Value.String()
		text, err := json.Marshal(s)
		var kept netqos.State
		if err == nil {
			err = json.Unmarshal(text, &kept)
		}
		if s, out = netqos.Step(kept, in); err != nil || out.Plan != nil || len(s.Held) != 1 || len(out.Directions) != 1 {
			t.Errorf("%s: again: %s, %+v, %v", name, values(&out), s, err)
		}
		in.Link.Why["eth0/egress"] = "busy"
		if s, out = netqos.Step(s, in); out.Plan != nil || len(s.Held) != 1 || !strings.Contains(strings.Join(out.Limited, ""), "no egress: busy") {
			t.Errorf("%s: cannot be set: %s, %+v", name, values(&out), s)
		}
		delete(in.Link.Why, "eth0/egress")
		tc.end(&in)
		if s, out = netqos.Step(s, in); values(&out) != "eth0/egress="+tc.original || len(s.Held) != 1 {
			t.Errorf("%s: at the end: %q, %+v", name, values(&out), s)
		}
		in.Link.Now["eth0/egress"] = tc.original
		if s, out = netqos.Step(s, in); len(out.Plan) != 0 || len(s.Held) != 0 {
			t.Errorf("%s: afterwards: %q, %+v", name, values(&out), s)
		}
	}
}

// What somebody else has set meanwhile is his.
func TestLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	in := netqos.Input{Strategy: nil, Link: link()}
	for now, held := range map[string]int{"qdisc fq 8002 AAAA": 0, "default": 0, shape.Gone: 0, "": 1} {
		in.Link.Now["eth0/egress"] = now
		if now == "" {
			delete(in.Link.Now, "eth0/egress") // cannot be read
		}
		if s, out := netqos.Step(netqos.State{Held: []netqos.Held{{Key: "eth0/egress", Original: "default"}}}, in); out.Plan != nil || len(s.Held) != held {
			t.Errorf("%q: %s, %+v", now, values(&out), s)
		}
	}
}

// What somebody else sets in the place of ours is written over while somebody asks, and is what goes back in the end.
func TestGivesBackWhatWasSetSince(t *testing.T) {
	t.Parallel()
	in := netqos.Input{Strategy: spec(nil, nil, qos(percent(10), percent(50))), Link: link()}
	s, out := netqos.Step(netqos.State{}, in)
	ours := out.Plan[0].Value.String()
	for _, theirs := range []string{"qdisc fq 8001 AAAA", "default"} {
		in.Link.Now["eth0/egress"] = theirs
		if s, out = netqos.Step(s, in); len(out.Plan) != 1 || out.Plan[0].Value.String() != ours {
			t.Errorf("over %s: %s", theirs, values(&out))
		}
		for _, now := range []string{ours, "htb incomplete", shape.Gone} {
			in.Link.Now["eth0/egress"] = now
			if s, _ = netqos.Step(s, in); !slices.Equal(s.Held, []netqos.Held{{Key: "eth0/egress", Original: theirs}}) {
				t.Errorf("%s, then %s: %+v", theirs, now, s)
			}
		}
		in.Link.Now["eth0/egress"] = ours
		end := in
		end.Strategy = nil
		if _, out = netqos.Step(s, end); values(&out) != "eth0/egress="+theirs {
			t.Errorf("%s goes back as %q", theirs, values(&out))
		}
	}
}

// TestCap: a cap limits what a BE pod sends, next to its annotation and in a class or in none; nobody else has one.
func TestCap(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		class    protocol.QoS
		be       bool
		limit    int64
		cap      unit.BitRate
		want, in unit.BitRate
	}{
		"no cap":                   {protocol.QoSBE, true, 0, 0, 0, 0},
		"a cap":                    {protocol.QoSBE, true, 0, 8e8, 8e8, 0},
		"below its limit":          {protocol.QoSBE, true, 1e9, 8e8, 8e8, 1e9},
		"above its limit":          {protocol.QoSBE, true, 5e8, 8e8, 5e8, 5e8},
		"its class is not enabled": {protocol.QoSBE, false, 0, 8e8, 8e8, 0},
		"not BE":                   {protocol.QoSLS, true, 0, 8e8, 0, 0},
	} {
		classes := spec(qos(percent(30), percent(100)), qos(percent(10), percent(100)), nil)
		if tc.be {
			classes = spec(qos(percent(30), percent(100)), qos(percent(10), percent(100)), qos(percent(0), percent(100)))
		}
		p := netqos.Pod{Name: "a/p", Class: tc.class, Addresses: addrs("10.0.0.4"), Cap: tc.cap}
		if tc.limit > 0 {
			p.Limits = &protocol.NetworkQOS{IngressLimit: tc.limit, EgressLimit: tc.limit}
		}
		_, out := netqos.Step(netqos.State{}, netqos.Input{Strategy: classes, Link: link(), Pods: []netqos.Pod{p}})
		var got [2]unit.BitRate
		for _, d := range out.Directions {
			for _, p := range d.Pods {
				if strings.HasSuffix(d.Key, "/ingress") {
					got[1] = p.Limit
				} else {
					got[0] = p.Limit
				}
			}
		}
		if want := [2]unit.BitRate{tc.want, tc.in}; got != want {
			t.Errorf("%s: egress and ingress %v, want %v", name, got, want)
		}
	}
}
