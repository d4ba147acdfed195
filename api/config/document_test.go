// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config_test

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// document is the configuration of one program: what holds for all of them is written once.
type document[C any] struct {
	kind     string
	defaults func() C
	load     func([]byte) (C, *strategy.Spec, error)
	validate func(*C) []error
}

// refusal is a file that is not loaded: the error is one of is, where that is not nil, and says want.
type refusal struct {
	in   string
	is   error
	want []string
}

// mistake is a change of the defaults; the error says want.
type mistake[C any] struct {
	set  func(*C)
	want string
}

func (d document[C]) head() string {
	return "apiVersion: koord-rt.dev/v1alpha1\nkind: " + d.kind + "\n"
}

// refuses loads files that no program takes, and the program's own.
func (d document[C]) refuses(t *testing.T, own map[string]refusal) {
	t.Helper()
	const slo = "---\napiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\nspec: {}\n"
	head := d.head()
	all := map[string]refusal{
		"empty":          {"", strategy.ErrEmpty, nil},
		"comment":        {"# x\n", strategy.ErrEmpty, nil},
		"cut":            {head + "limits: {devices: tr", nil, nil},
		"bare":           {"socket: /x\n", config.ErrDocument, []string{d.kind}},
		"other kind":     {"apiVersion: v1\nkind: Pod\n", config.ErrDocument, []string{`"Pod"`, d.kind}},
		"other version":  {"apiVersion: koord-rt.dev/v2\nkind: " + d.kind + "\n", config.ErrDocument, []string{"v2"}},
		"twice":          {head + "---\n" + head, config.ErrDocument, []string{"line 4", "second"}},
		"two strategies": {head + "strategy: {}\n" + slo, config.ErrDocument, []string{"keep one"}},
		"unknown":        {head + "limits:\n  devises: true\n", strategy.ErrUnknownKey, []string{"line 4", "limits.devises"}},
		"unknown in slo": {head + slo + "sepc: {}\n", strategy.ErrUnknownKey, []string{"line 7", "sepc"}},
		"bad strategy":   {head + "strategy: {cpuBurstStrategy: {cpuBurstPercent: 0}}\n", strategy.ErrRange, []string{"cpuBurstPercent"}},
		"bad value":      {head + "log: {level: trace}\n", config.ErrSetting, []string{"log.level"}},
	}
	for name := range own {
		if _, twice := all[name]; twice {
			t.Fatalf("row %q stands for every program", name)
		}
	}
	maps.Copy(all, own)
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, spec, err := d.load([]byte(c.in))
			if err == nil {
				t.Fatal("accepted")
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %q is not %q", err, c.is)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			d.nothing(t, got, spec)
		})
	}
}

// nothing: a configuration that is refused is not returned in part.
func (d document[C]) nothing(t *testing.T, got C, spec *strategy.Spec) {
	t.Helper()
	var zero C
	if spec != nil || !reflect.DeepEqual(got, zero) {
		t.Errorf("partial result %+v, %v", got, spec)
	}
}

// finds makes one mistake at a time.
func (d document[C]) finds(t *testing.T, mistakes map[string]mistake[C]) {
	t.Helper()
	for name, c := range mistakes {
		cfg := d.defaults()
		c.set(&cfg)
		errs := d.validate(&cfg)
		if err := errors.Join(errs...); !errors.Is(err, config.ErrSetting) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: errors %v, want %q", name, errs, c.want)
		}
	}
}

// fuzz: what is loaded is valid, and what is refused leaves nothing. more are what else holds for what is loaded.
func (d document[C]) fuzz(f *testing.F, more ...func(*testing.T, C)) {
	f.Helper()
	f.Add([]byte("kind: " + d.kind))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, spec, err := d.load(data)
		if err != nil {
			d.nothing(t, got, spec)
			return
		}
		if errs := d.validate(&got); len(errs) > 0 {
			t.Fatalf("accepted but invalid: %v", errs)
		}
		for _, check := range more {
			check(t, got)
		}
	})
}

// isDefault: an empty document gives the defaults, which are valid, and no strategy.
func (d document[C]) isDefault(t *testing.T) {
	t.Helper()
	want := d.defaults()
	if errs := d.validate(&want); len(errs) > 0 {
		t.Error(errs)
	}
	got, spec, err := d.load([]byte(d.head()))
	if err != nil || spec != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, %v", got, spec, err)
	}
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	for kind, check := range map[string]func(*testing.T){
		config.KindNRI: nri().isDefault, config.KindProxy: proxy().isDefault, config.KindKoordlet: koordlet().isDefault,
	} {
		t.Run(kind, check)
	}
}
