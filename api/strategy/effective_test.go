// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy_test

import (
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// Effective of nothing is the defaults with LSR, LS and BE neutral, and every leaf that is used later is set.
func TestEffectiveOfNothing(t *testing.T) {
	t.Parallel()
	spec := strategy.Effective(strategy.Spec{})
	if errs := strategy.Validate(spec); len(errs) > 0 {
		t.Errorf("defaults out of range: %v", errs)
	}
	for _, name := range []string{"LSR", "LS", "BE", "SYSTEM"} {
		class := spec.ClassFor(name)
		got := []int64{
			*class.CPUQOS.GroupIdentity, *class.CPUQOS.SchedIdle, *class.MemoryQOS.WmarkRatio,
			*class.MemoryQOS.WmarkScalePermill, *class.MemoryQOS.WmarkMinAdj, *class.ResctrlQOS.CATRangeEndPercent,
			*class.ResctrlQOS.MBAPercent,
		}
		if want := []int64{0, 0, 0, 50, 0, 100, 100}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	without := map[string]bool{ // documented as having no default
		"PageCacheLimitPercent": true, "PageCacheLimitSize": true,
	}
	for _, part := range []any{*spec.ClassFor("BE").CPUQOS, *spec.ClassFor("BE").MemoryQOS, *spec.ClassFor("BE").ResctrlQOS, spec.Burst(), spec.Policy()} {
		v := reflect.ValueOf(part)
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Field(i).IsNil() && !without[name] {
				t.Errorf("%s.%s is nil", v.Type(), name)
			}
		}
	}
}

// The defaults of an enabled class, table of the node reference.
func TestEffectiveEnabled(t *testing.T) {
	t.Parallel()
	on := true
	class := func() *strategy.ResourceQOS {
		return &strategy.ResourceQOS{
			CPUQOS: &strategy.CPUQOS{Enable: &on}, MemoryQOS: &strategy.MemoryQOS{Enable: &on},
			ResctrlQOS: &strategy.ResctrlQOS{Enable: &on},
		}
	}
	spec := strategy.Effective(strategy.Spec{ResourceQOSStrategy: &strategy.ResourceQOSStrategy{
		LSRClass: class(), LSClass: class(), BEClass: class(), SystemClass: class(),
	}})
	for name, want := range map[string][]int64{
		"LSR": {2, 1, 0, 100, 100, 95, 20, -25}, "LS": {2, 1, 0, 100, 100, 95, 20, -25},
		"BE": {-1, 0, 0, 30, 100, 95, 20, 50}, "SYSTEM": {0, 0, 0, 100, 100, 0, 50, 0},
	} {
		c := spec.ClassFor(name)
		expeller := int64(0)
		if *c.CPUQOS.CoreExpeller {
			expeller = 1
		}
		got := []int64{
			*c.CPUQOS.GroupIdentity, expeller, *c.ResctrlQOS.CATRangeStartPercent, *c.ResctrlQOS.CATRangeEndPercent,
			*c.ResctrlQOS.MBAPercent, *c.MemoryQOS.WmarkRatio, *c.MemoryQOS.WmarkScalePermill, *c.MemoryQOS.WmarkMinAdj,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

// Switched off means neutral even where the spec gives values; System keeps its own.
func TestEffectiveDisabled(t *testing.T) {
	t.Parallel()
	identity := int64(-1)
	class := &strategy.ResourceQOS{CPUQOS: &strategy.CPUQOS{GroupIdentity: &identity}}
	spec := strategy.Effective(strategy.Spec{ResourceQOSStrategy: &strategy.ResourceQOSStrategy{BEClass: class, SystemClass: class}})
	if got := *spec.ClassFor("BE").CPUQOS.GroupIdentity; got != 0 {
		t.Errorf("BE off: identity %d, want 0", got)
	}
	if got := *spec.ClassFor("SYSTEM").CPUQOS.GroupIdentity; got != -1 {
		t.Errorf("SYSTEM off: identity %d, want -1", got)
	}
}

func TestEffectiveDoesNotAlias(t *testing.T) {
	t.Parallel()
	spec, err := strategy.Parse([]byte(`{"resourceQOSStrategy":{"beClass":{"memoryQOS":{"enable":true,"throttlingPercent":80},
		"blkioQOS":{"enable":true,"blocks":[{"name":"/dev/sda","type":"device","ioCfg":{"readIOPS":7}}]}}},
		"systemStrategy":{"schedFeatures":{"a":true}},"extensions":{"x":{"y":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	effective := strategy.Effective(spec)
	before := toJSON(t, spec)
	be := effective.ResourceQOSStrategy.BEClass
	*be.MemoryQOS.ThrottlingPercent = 1
	*be.BlkIOQOS.Blocks[0].IOCfg.ReadIOPS = 1
	effective.SystemStrategy.SchedFeatures["a"] = false
	effective.Extensions["x"][0] = ' '
	if after := toJSON(t, spec); after != before {
		t.Errorf("the input changed: %s became %s", before, after)
	}
	if one, other := strategy.Default(), strategy.Default(); one.ResourceQOSStrategy == other.ResourceQOSStrategy {
		t.Error("Default shares memory between calls")
	}
}

func TestAccessorsOfNil(t *testing.T) {
	t.Parallel()
	var spec *strategy.Spec
	for _, class := range []strategy.ResourceQOS{spec.ClassFor("LS"), (&strategy.Spec{}).ClassFor("nonsense")} {
		if class.CPUQOS == nil || class.MemoryQOS == nil || class.BlkIOQOS == nil || class.ResctrlQOS == nil || class.NetworkQOS == nil {
			t.Errorf("sub-struct missing: %+v", class)
		}
	}
	if spec.Threshold().Enable != nil || spec.Burst().Policy != nil || spec.Policy().CPUPolicy != nil {
		t.Error("a nil spec says something")
	}
}

func TestValidateRanges(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"resourceUsedThresholdWithBE":{"cpuSuppressThresholdPercent":101}}`:                                               "resourceUsedThresholdWithBE.cpuSuppressThresholdPercent: out of range: 101, want 0..100",
		`{"resourceUsedThresholdWithBE":{"memoryEvictLowerPercent":70}}`:                                                    "want < memoryEvictThresholdPercent (70)",
		`{"resourceUsedThresholdWithBE":{"cpuEvictBESatisfactionLowerPercent":61}}`:                                         "61, want 1..60",
		`{"resourceUsedThresholdWithBE":{"cpuEvictTimeWindowSeconds":0}}`:                                                   "0, want >= 1",
		`{"resourceUsedThresholdWithBE":{"allocatableEvictPriorityThreshold":8000}}`:                                        "8000, want 0..7999",
		`{"resourceUsedThresholdWithBE":{"cpuSuppressPolicy":"x"}}`:                                                         `"x", want cpuset, cfsQuota`,
		`{"resourceQOSStrategy":{"policies":{"memoryHighPolicy":"x"}}}`:                                                     "limitPercent, requestLimitRange",
		`{"resourceQOSStrategy":{"lsClass":{"memoryQOS":{"throttlingPercent":1001}}}}`:                                      "1001, want 0..1000",
		`{"resourceQOSStrategy":{"lsClass":{"memoryQOS":{"wmarkScalePermill":0}}}}`:                                         "0, want 1..1000",
		`{"resourceQOSStrategy":{"lsClass":{"memoryQOS":{"wmarkMinAdj":51}}}}`:                                              "51, want -25..50",
		`{"resourceQOSStrategy":{"lsClass":{"resctrlQOS":{"catRangeStartPercent":50,"catRangeEndPercent":50}}}}`:            "want < catRangeEndPercent (50)",
		`{"resourceQOSStrategy":{"lsClass":{"networkQOS":{"egressLimit":101}}}}`:                                            "networkQOS.egressLimit: out of range: 101",
		`{"resourceQOSStrategy":{"beClass":{"blkioQOS":{"blocks":[{"name":"a","type":"x"}]}}}}`:                             "blkioQOS.blocks[0].type",
		`{"resourceQOSStrategy":{"beClass":{"blkioQOS":{"blocks":[{"name":"","type":"device"}]}}}}`:                         "blkioQOS.blocks[0].name",
		`{"resourceQOSStrategy":{"beClass":{"blkioQOS":{"blocks":[{"name":"a","type":"device","ioCfg":{"readBPS":-1}}]}}}}`: "ioCfg.readBPS: out of range: -1",
		`{"cpuBurstStrategy":{"cpuBurstPercent":10001}}`:                                                                    "10001, want 1..10000",
		`{"cpuBurstStrategy":{"cfsQuotaBurstPeriodSeconds":-2}}`:                                                            "-2, want >= -1",
		`{"systemStrategy":{"watermarkScaleFactor":401}}`:                                                                   "401, want 1..400",
		`{"hostApplications":[{"name":"a/b"}]}`:                                                                             "hostApplications[0].name",
		`{"hostApplications":[{"name":"."}]}`:                                                                               "hostApplications[0].name",
		`{"hostApplications":[{"name":"a","cgroupPath":{"base":"CgroupRoot","parentDir":"/../x"}}]}`:                        "cgroupPath.parentDir",
	} {
		_, err := strategy.Parse([]byte(in))
		if !errors.Is(err, strategy.ErrRange) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", in, err, want)
		}
	}
	if _, err := strategy.Parse([]byte(`{"resourceQOSStrategy":{"lsClass":{"memoryQOS":{"throttlingPercent":1000}}}}`)); err != nil {
		t.Error(err)
	}
}

func TestParseQuantity(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"0": 0, "1000": 1000, "1k": 1000, "2Gi": 2 << 30, "1500m": 2, "1.5": 2, "1e3": 1000, "1E": 1e18, "1E2": 100,
		"0.5Ki": 512, "100n": 1, "9223372036854775807": math.MaxInt64, "+5": 5, ".5Gi": 1 << 29,
	} {
		if got, err := strategy.ParseQuantity(in); err != nil || got != want {
			t.Errorf("%q = %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "-1", "NaN", "Inf", "1 Gi", "1gi", "0x10", "1/3", "9223372036854775808", "8Ei", "1e99", "1e-99", "Gi", "1..2",
		"1_0", "++1", "1m1", "\x00", strings.Repeat("1", 65),
	} {
		if got, err := strategy.ParseQuantity(in); !errors.Is(err, strategy.ErrQuantity) {
			t.Errorf("%q = %d, %v, want an error", in, got, err)
		}
	}
}

func FuzzParseQuantity(f *testing.F) {
	for _, seed := range []string{"1", "2Gi", "1500m", "1e3", "-1", ".", "1.5Ki", "+.e1", "E"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		whole, err := strategy.ParseQuantity(s)
		if err != nil {
			if whole != 0 {
				t.Fatalf("%q: partial result %d", s, whole)
			}
			return
		}
		again, err := strategy.ParseQuantity(strconv.FormatInt(whole, 10))
		if whole < 0 || err != nil || again != whole {
			t.Fatalf("%q is %d, which reads as %d, %v", s, whole, again, err)
		}
	})
}
