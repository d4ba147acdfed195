// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package shape_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
)

const text = "htb total=1000000000 system=800000000/1000000000/0 ls=100000000/1000000000/2 be=100000000/500000000/3"

func TestText(t *testing.T) {
	t.Parallel()
	s, err := shape.Parse(text)
	if err != nil || s.String() != text || !shape.Ours(text) {
		t.Fatalf("%q, %v", s.String(), err)
	}
	be := s.Find(shape.BE)
	if s.Total != unit.Gigabit || be == nil || *be != (shape.Class{Name: "be", Rate: 100 * unit.Megabit, Ceil: 500 * unit.Megabit, Prio: 3}) || s.Find(shape.LSR) != nil {
		t.Errorf("%+v", s)
	}
	for name, bad := range map[string]string{
		"somebody else's":   "default",
		"no class":          "htb total=1000000000",
		"no system":         "htb total=1000000000 be=8/8/0",
		"order":             strings.Replace(text, "ls=", "lsr=", 1) + " ls=8/8/0",
		"twice":             text + " be=8/8/3",
		"rate above ceil":   strings.Replace(text, "be=100000000/500000000", "be=500000000/100000000", 1),
		"ceil above total":  strings.Replace(text, "total=1000000000", "total=900000000", 1),
		"no rate":           strings.Replace(text, "be=100000000/", "be=0/", 1),
		"no whole bytes":    strings.Replace(text, "be=100000000/", "be=100000001/", 1),
		"priority":          strings.Replace(text, "/500000000/3", "/500000000/8", 1),
		"another spelling":  strings.Replace(text, "/500000000/3", "/500000000/+3", 1),
		"beyond every link": "htb total=90000000000000000 system=8/8/0",
		"long":              text + strings.Repeat(" ", 2000),
	} {
		if _, err := shape.Parse(bad); !errors.Is(err, shape.ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	for _, d := range []shape.Direction{shape.Egress, shape.Ingress} {
		link, back, err := shape.ParseKey(shape.Key("bond0.12", d))
		if link != "bond0.12" || back != d || err != nil {
			t.Errorf("%s: %s %s %v", d, link, back, err)
		}
	}
	for _, bad := range []string{"", "eth0", "eth0/", "/egress", "eth0/sideways", "a name/egress", "../egress", "eth0123456789012/egress", "a/b/egress"} {
		if _, _, err := shape.ParseKey(bad); !errors.Is(err, shape.ErrShape) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(text)
	f.Add("htb total=8 system=8/8/7")
	f.Fuzz(func(t *testing.T, in string) {
		s, err := shape.Parse(in)
		if err == nil && s.String() != in {
			t.Fatalf("%q became %q", in, s.String())
		}
		if link, d, err := shape.ParseKey(in); err == nil && shape.Key(link, d) != in {
			t.Fatalf("%q became %q", in, shape.Key(link, d))
		}
	})
}
