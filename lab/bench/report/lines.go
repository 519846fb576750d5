package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/idem-go/idem/lab/bench/result"
)

// lines draws one line for each series over numbers that grow by powers of ten, with bars from the least to the greatest,
// and broken lines around what counts as the same.
func lines(title, x, y string, numbers []float64, all []series) ([]byte, error) {
	p := newPlot(title, x)
	p.Y.Label.Text = y
	top := 1.2
	for i, s := range all {
		points := errorPoints{}
		shift := (float64(i) - float64(len(all)-1)/2) * 0.03 // so that the bars do not hide each other
		for at, figure := range s.figures {
			points.XYs = append(points.XYs, plotter.XY{X: math.Log10(numbers[at]) + shift, Y: figure})
			points.YErrors = append(points.YErrors, struct{ Low, High float64 }{figure - s.least[at], s.largest[at] - figure})
			top = max(top, s.largest[at]*1.05)
		}
		line, dots, err := plotter.NewLinePoints(points.XYs)
		if err != nil {
			return nil, err
		}
		reach, err := plotter.NewYErrorBars(points)
		if err != nil {
			return nil, err
		}
		line.Color, dots.Color, reach.Color = palette[i], palette[i], palette[i]
		line.Width, dots.Shape = 1.5, draw.CircleGlyph{}
		p.Add(line, dots, reach)
		p.Legend.Add(s.name, line, dots)
	}
	var ticks plot.ConstantTicks
	for _, n := range numbers {
		ticks = append(ticks, plot.Tick{Value: math.Log10(n), Label: result.Grouped(n)})
	}
	p.X.Tick.Marker = ticks
	p.X.Min, p.X.Max = ticks[0].Value-0.2, ticks[len(ticks)-1].Value+0.2
	p.Add(level(1-same), level(1+same))
	p.Y.Min, p.Y.Max = 0, top
	p.Legend.Left = true
	p.Legend.XOffs, p.Legend.YOffs = 12, 6
	return paint(p, 3.6*vg.Inch)
}

type errorPoints struct {
	plotter.XYs
	plotter.YErrors
}

// same is how far from one a ratio may be.
const same = 0.1

// level is a broken line across the plot.
type level float64

func (l level) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	c.StrokeLine2(draw.LineStyle{Color: ink, Width: 0.5, Dashes: []vg.Length{3, 3}}, c.Min.X, y(float64(l)), c.Max.X, y(float64(l)))
}
