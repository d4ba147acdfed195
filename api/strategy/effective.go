// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"encoding/json"
	"reflect"
)

// Default is the strategy of a node that is told nothing: every feature off, with upstream's values for the day it is
// switched on. Fields without a default stay nil.
func Default() Spec {
	return Spec{
		ResourceUsedThresholdWithBE: &ResourceThresholdStrategy{
			Enable:                          new(bool),
			CPUSuppressThresholdPercent:     ptr[int64](65),
			CPUSuppressPolicy:               ptr(SuppressCPUSet),
			MemoryEvictThresholdPercent:     ptr[int64](70),
			CPUEvictBEUsageThresholdPercent: ptr[int64](90),
			CPUEvictTimeWindowSeconds:       ptr[int64](60),
			CPUEvictPolicy:                  ptr(EvictByRealLimit),
		},
		ResourceQOSStrategy: &ResourceQOSStrategy{
			Policies: &Policies{
				CPUPolicy:        ptr(CPUPolicyIdentity),
				NETQOSPolicy:     ptr(NetQOSPolicyTC),
				MemoryHighPolicy: ptr(MemoryHighLimit),
			},
			LSRClass:    classDefault(2, true, 100, wmark{95, 20, -25}),
			LSClass:     classDefault(2, true, 100, wmark{95, 20, -25}),
			BEClass:     classDefault(-1, false, 30, wmark{95, 20, 50}),
			SystemClass: neutral(),
			CgroupRoot:  neutral(),
		},
		CPUBurstStrategy: &CPUBurstStrategy{
			Policy:                     ptr(BurstNone),
			CPUBurstPercent:            ptr[int64](1000),
			CFSQuotaBurstPercent:       ptr[int64](300),
			CFSQuotaBurstPeriodSeconds: ptr[int64](-1),
			SharePoolThresholdPercent:  ptr[int64](50),
		},
		SystemStrategy: &SystemStrategy{TotalNetworkBandwidth: ptr(Quantity("0"))},
	}
}

// wmark holds wmarkRatio, wmarkScalePermill and wmarkMinAdj.
type wmark struct {
	ratio, scale, adj int64
}

// classDefault is a class' values; its features are off.
func classDefault(identity int64, expeller bool, catEnd int64, w wmark) *ResourceQOS {
	return &ResourceQOS{
		CPUQOS: &CPUQOS{
			Enable: new(bool), GroupIdentity: ptr(identity), SchedIdle: new(int64), CoreExpeller: ptr(expeller),
		},
		MemoryQOS: &MemoryQOS{
			Enable: new(bool), MinLimitPercent: new(int64), LowLimitPercent: new(int64), ThrottlingPercent: new(int64),
			WmarkRatio: ptr(w.ratio), WmarkScalePermill: ptr(w.scale), WmarkMinAdj: ptr(w.adj),
			PriorityEnable: new(int64), Priority: new(int64), OomKillGroup: new(int64),
			PageCacheEnable: new(bool), PageCacheReclaimSync: new(bool),
		},
		BlkIOQOS: &BlkIOQOS{Enable: new(bool)},
		ResctrlQOS: &ResctrlQOS{
			Enable: new(bool), CATRangeStartPercent: new(int64), CATRangeEndPercent: ptr(catEnd),
			MBAPercent: ptr[int64](100),
		},
		NetworkQOS: &NetworkQOS{
			Enable: new(bool), IngressRequest: &IntOrString{}, IngressLimit: &IntOrString{Int: 100},
			EgressRequest: &IntOrString{}, EgressLimit: &IntOrString{Int: 100},
		},
	}
}

// neutral is what a class gets while a feature is off: no preference, no protection, the whole cache.
func neutral() *ResourceQOS { return classDefault(0, false, 100, wmark{0, 50, 0}) }

// Effective overlays s over [Default], field by field, and replaces the CPU, memory and resctrl parameters of LSR, LS
// and BE by neutral ones where the class' enable is false (System and the root keep theirs). Every leaf that has a
// default is set in the result, which shares no memory with s. Lists are replaced, maps get the keys of s.
func Effective(s Spec) Spec {
	out := Default()
	overlay(reflect.ValueOf(&out).Elem(), reflect.ValueOf(s))
	q := out.ResourceQOSStrategy
	for _, class := range []*ResourceQOS{q.LSRClass, q.LSClass, q.BEClass} {
		off := neutral()
		if !*class.CPUQOS.Enable {
			class.CPUQOS = off.CPUQOS
		}
		if !*class.MemoryQOS.Enable {
			class.MemoryQOS = off.MemoryQOS
		}
		if !*class.ResctrlQOS.Enable {
			class.ResctrlQOS = off.ResctrlQOS
		}
	}
	t := out.ResourceUsedThresholdWithBE
	if t.MemoryEvictLowerPercent == nil {
		t.MemoryEvictLowerPercent = lower(t.MemoryEvictThresholdPercent)
	}
	if t.CPUEvictLowerPercent == nil {
		t.CPUEvictLowerPercent = lower(t.CPUEvictThresholdPercent)
	}
	return out
}

// lower is upstream's default release mark: threshold - 2, not below 0; nil without a threshold.
func lower(threshold *int64) *int64 {
	if threshold == nil {
		return nil
	}
	return ptr(max(*threshold-2, 0))
}

// ptr is the address of a copy of v.
func ptr[T any](v T) *T { return &v }

// clone is a deep copy.
func clone[T any](v T) T {
	var out T
	overlay(reflect.ValueOf(&out).Elem(), reflect.ValueOf(v))
	return out
}

// leafType says that a struct is one value (a json.Unmarshaler) and not a group of fields.
func leafType(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// Overlay is base with what is given in over: groups of fields are merged field by field, maps key by key, lists are replaced. The
// result shares no memory with either.
func Overlay[T any](base, over T) T {
	out := clone(base)
	overlay(reflect.ValueOf(&out).Elem(), reflect.ValueOf(over))
	return out
}

// overlay copies deeply what is set in from over to; both have the same type. What stands behind to is to's own.
func overlay(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.Pointer:
		if from.IsNil() {
			return
		}
		elem := from.Type().Elem()
		if to.IsNil() || elem.Kind() != reflect.Struct || leafType(elem) {
			to.Set(reflect.New(elem))
		}
		overlay(to.Elem(), from.Elem())
	case reflect.Struct:
		if leafType(from.Type()) {
			to.Set(from)
			return
		}
		for i := range from.NumField() {
			overlay(to.Field(i), from.Field(i))
		}
	case reflect.Slice:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			overlay(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		if from.IsNil() {
			return
		}
		if to.IsNil() {
			to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
		}
		for entry := from.MapRange(); entry.Next(); {
			value := reflect.New(from.Type().Elem()).Elem()
			overlay(value, entry.Value())
			to.SetMapIndex(entry.Key(), value)
		}
	default:
		to.Set(from)
	}
}
