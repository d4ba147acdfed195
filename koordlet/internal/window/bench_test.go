// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package window

import (
	"fmt"
	"testing"

	"github.com/koord-rt/koord-rt/model/sample"
)

func BenchmarkAppend(b *testing.B) {
	m := New(Options{})
	batch := budget(0, nil)
	second := 0
	b.ReportAllocs()
	for b.Loop() {
		second++
		for i := range batch {
			batch[i].At = at(second)
		}
		m.Append(batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(batch)), "ns/sample")
}

func BenchmarkLast(b *testing.B) {
	m := New(Options{})
	var batch []sample.Sample
	for s := range 400 {
		batch = budget(s, batch[:0])
		m.Append(batch)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Last(containerNames[7], sample.CPUUsage, at(397), at(399))
	}
}

func BenchmarkQuery(b *testing.B) {
	m := New(Options{})
	var batch []sample.Sample
	for s := range 1900 {
		batch = budget(s, batch[:0])
		m.Append(batch)
	}
	for _, window := range []int{10, 60, 300, 1800} {
		b.Run(fmt.Sprintf("%ds", window), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Query(containerNames[7], sample.CPUUsage, at(1899-window), at(1899))
			}
		})
	}
}
