// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// histogram is a Prometheus histogram: cumulative counts up to and including each bound, in seconds.
type histogram struct {
	bounds []float64
	counts []uint64
	count  uint64
	sum    float64
}

// histograms by the value of one label.
type histograms map[string]histogram

// scrape reads one histogram family from url and keeps the series that match, by the label's value. unix is the socket
// to reach it by, "" for TCP.
func scrape(ctx context.Context, unix, url, family, label string, match func(labels map[string]string) bool) (histograms, error) {
	return scrapeBy(ctx, unix, url, family, func(labels map[string]string) string {
		if !match(labels) {
			return skipped
		}
		return labels[label]
	})
}

// skipped is the key of a series that scrapeBy leaves out: no label's value holds a NUL.
const skipped = "\x00"

// scrapeBy is scrape with the series named by all of their labels.
func scrapeBy(ctx context.Context, unix, url, family string, key func(labels map[string]string) string) (histograms, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		if unix != "" {
			network, address = "unix", unix
		}
		return d.DialContext(ctx, network, address)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics of %s: %s", url, res.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return nil, fmt.Errorf("parse metrics of %s: %w", url, err)
	}
	out := histograms{}
	for _, m := range families[family].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if k := key(labels); k != skipped {
			out[k] = newHistogram(m.GetHistogram())
		}
	}
	return out, nil
}

func newHistogram(h *dto.Histogram) histogram {
	out := histogram{count: h.GetSampleCount(), sum: h.GetSampleSum()}
	for _, b := range h.GetBucket() {
		if !math.IsInf(b.GetUpperBound(), 1) {
			out.bounds = append(out.bounds, b.GetUpperBound())
			out.counts = append(out.counts, b.GetCumulativeCount())
		}
	}
	return out
}

// since is what came after an earlier reading.
func (hs histograms) since(before histograms) histograms {
	out := histograms{}
	for k, h := range hs {
		out[k] = h.combine(before[k], -1)
	}
	return out
}

// add merges another reading into hs.
func (hs histograms) add(o histograms) {
	for k, h := range o {
		hs[k] = h.combine(hs[k], 1)
	}
}

// combine is h plus or minus o, which has the same bounds or is empty.
func (h histogram) combine(o histogram, sign int) histogram {
	out := histogram{bounds: h.bounds, counts: append([]uint64(nil), h.counts...)}
	out.count = uint64(int64(h.count) + int64(sign)*int64(o.count))
	out.sum = h.sum + float64(sign)*o.sum
	for i := range o.counts {
		out.counts[i] = uint64(int64(h.counts[i]) + int64(sign)*int64(o.counts[i]))
	}
	return out
}

func (h histogram) mean() float64 { return h.sum / float64(h.count) }

// quantile by linear interpolation inside the bucket, as Prometheus' histogram_quantile does; beyond the last bound it
// is the last bound.
func (h histogram) quantile(q float64) float64 {
	if h.count == 0 {
		return math.NaN()
	}
	rank, low, below := q*float64(h.count), 0.0, uint64(0)
	for i, c := range h.counts {
		if float64(c) >= rank && c > below {
			return low + (h.bounds[i]-low)*(rank-float64(below))/float64(c-below)
		}
		low, below = h.bounds[i], c
	}
	return low
}

// within is the share of observations at or below a bound of the histogram.
func (h histogram) within(bound float64) float64 {
	for i, b := range h.bounds {
		if b == bound && h.count > 0 {
			return float64(h.counts[i]) / float64(h.count)
		}
	}
	return math.NaN()
}

// line is every quantile and bucket.
func (h histogram) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "n=%d mean=%s", h.count, took(h.mean()))
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
		fmt.Fprintf(&b, " p%g=%s", q*100, took(h.quantile(q)))
	}
	b.WriteString(" buckets:")
	for i, c := range h.counts {
		if c > 0 && (i == 0 || h.counts[i-1] < h.count) {
			fmt.Fprintf(&b, " ≤%s=%d", strings.ReplaceAll(took(h.bounds[i]), " ", ""), c)
		}
	}
	return b.String()
}
