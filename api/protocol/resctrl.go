// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
)

// maxCacheID is the highest cache id that is accepted; more than any machine has.
const maxCacheID = 4095

// resctrlWire is the resctrl annotation as written.
type resctrlWire struct {
	LLC *schemataWire[rangeWire]   `json:"llc,omitempty"`
	MB  *schemataWire[percentWire] `json:"mb,omitempty"`
}

// schemataWire is the shape that llc and mb share.
type schemataWire[T any] struct {
	Schemata         *T  `json:"schemata,omitempty"`
	SchemataPerCache []T `json:"schemataPerCache,omitempty"`
}

type rangeWire struct {
	CacheID *int    `json:"cacheID,omitempty"`
	Range   []int64 `json:"range,omitempty"`
}

type percentWire struct {
	CacheID *int   `json:"cacheID,omitempty"`
	Percent *int64 `json:"percent,omitempty"`
}

// ParseResctrl reads the resctrl annotation. Ranges are percent of the cache ways, start < end; memory bandwidth is
// 1..100 percent. An annotation that asks for nothing is an error.
func ParseResctrl(s string) (Resctrl, error) {
	var wire resctrlWire
	if err := decode(s, &wire); err != nil {
		return Resctrl{}, err
	}
	var out Resctrl
	if err := out.readLLC(wire); err != nil {
		return Resctrl{}, fmt.Errorf("llc: %w", err)
	}
	if err := out.readMB(wire); err != nil {
		return Resctrl{}, fmt.Errorf("mb: %w", err)
	}
	if out.LLC == nil && out.LLCPerCache == nil && out.MBPercent == nil && out.MBPerCache == nil {
		return Resctrl{}, fmt.Errorf("%s: neither llc nor mb asked", quote(s))
	}
	return out, nil
}

func (r *Resctrl) readLLC(wire resctrlWire) error {
	if wire.LLC == nil {
		return nil
	}
	if wire.LLC.Schemata != nil {
		part, err := rangeFrom(wire.LLC.Schemata.Range)
		if err != nil {
			return err
		}
		r.LLC = &part
	}
	for _, entry := range wire.LLC.SchemataPerCache {
		part, err := rangeFrom(entry.Range)
		if err != nil {
			return err
		}
		if r.LLCPerCache, err = perCache(r.LLCPerCache, entry.CacheID, part); err != nil {
			return err
		}
	}
	return nil
}

func (r *Resctrl) readMB(wire resctrlWire) error {
	if wire.MB == nil {
		return nil
	}
	if wire.MB.Schemata != nil {
		percent, err := percentFrom(wire.MB.Schemata.Percent)
		if err != nil {
			return err
		}
		r.MBPercent = &percent
	}
	for _, entry := range wire.MB.SchemataPerCache {
		percent, err := percentFrom(entry.Percent)
		if err != nil {
			return err
		}
		if r.MBPerCache, err = perCache(r.MBPerCache, entry.CacheID, percent); err != nil {
			return err
		}
	}
	return nil
}

// perCache adds the value of one cache.
func perCache[V any](m map[int]V, id *int, v V) (map[int]V, error) {
	if id == nil || *id < 0 || *id > maxCacheID {
		return nil, fmt.Errorf("cacheID: want 0..%d", maxCacheID)
	}
	if _, twice := m[*id]; twice {
		return nil, fmt.Errorf("cacheID %d: given twice", *id)
	}
	if m == nil {
		m = make(map[int]V)
	}
	m[*id] = v
	return m, nil
}

func rangeFrom(r []int64) (Range, error) {
	if len(r) != 2 || r[0] < 0 || r[1] > 100 || r[0] >= r[1] {
		return Range{}, fmt.Errorf("range: want [start,end] in percent, 0 <= start < end <= 100")
	}
	return Range{Start: r[0], End: r[1]}, nil
}

func percentFrom(p *int64) (int64, error) {
	if p == nil || *p < 1 || *p > 100 {
		return 0, fmt.Errorf("percent: want 1..100")
	}
	return *p, nil
}
