package report

import (
	"bytes"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/idem-go/idem/lab/bench/result"
)

// series are the bars of one colour, one for each row. A figure that is zero has no bar.
type series struct {
	name           string
	figures        []float64
	least, largest []float64 // whiskers; nil: none
}

// Colours that people who do not see red and green can tell apart (Okabe and Ito).
var palette = []color.Color{
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
}

var ink = color.RGBA{R: 0x33, G: 0x33, B: 0x33, A: 0xff}

const (
	width               = 8 * vg.Inch
	barHeight vg.Length = 9
)

// newPlot is a plot with our lettering, on white: a reader's page may be dark.
func newPlot(title, x string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, x
	p.Title.Padding = 8
	p.BackgroundColor = color.White
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
		style.Font.Size = font.Length(10)
		style.Color = ink
	}
	p.Title.TextStyle.Font.Size = font.Length(12)
	p.Legend.Padding = 3
	return p
}

// bars draws rows of horizontal bars, the first row on top, with a line at the unit if there is one.
func bars(title, x string, rows []string, all []series, unit float64) ([]byte, error) {
	p := newPlot(title, x)
	n, widest := len(rows), unit
	for i, s := range all {
		values := make(plotter.Values, n)
		for row, figure := range s.figures {
			values[n-1-row] = figure
		}
		chart, err := plotter.NewBarChart(values, barHeight)
		if err != nil {
			return nil, err
		}
		chart.Horizontal, chart.Color, chart.LineStyle.Width = true, palette[i], 0
		chart.Offset = barHeight * vg.Length(float64(len(all)-1)/2-float64(i))
		p.Add(chart)
		if len(all) > 1 {
			p.Legend.Add(s.name, chart)
		}
		p.Add(whiskers{s, n, chart.Offset})
		widest = max(widest, slices.Max(s.figures))
	}
	if unit > 0 {
		p.Add(upright(unit))
	}
	names := make([]string, n)
	for row, name := range rows {
		names[n-1-row] = name
	}
	p.NominalY(names...)
	p.Y.Tick.Label.XAlign = draw.XRight
	p.X.Min, p.X.Max = 0, widest*1.15 // one whisker that is far out must not make all bars short
	row := barHeight*vg.Length(len(all)) + 7
	height := vg.Length(n)*row + 1.1*vg.Inch
	if len(all) > 1 { // below the rows, where it hides no bar
		room := vg.Length(len(all)) * 16
		p.Y.Min = -0.6 - float64(room/row)
		height += room
	}
	return paint(p, height)
}

// upright is a line at the unit, which is what everything is compared with.
type upright float64

func (u upright) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	c.StrokeLine2(draw.LineStyle{Color: ink, Width: 0.75, Dashes: []vg.Length{3, 2}}, x(float64(u)), c.Min.Y, x(float64(u)), c.Max.Y)
}

// whiskers reach from the least to the greatest figure of a bar, and have the figure itself written at their end.
type whiskers struct {
	series
	rows   int
	offset vg.Length
}

func (w whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := draw.LineStyle{Color: ink, Width: 0.75}
	letters := p.X.Tick.Label
	letters.Font.Size, letters.XAlign, letters.YAlign = 8, draw.XLeft, draw.YCenter
	for row, figure := range w.figures {
		if figure == 0 {
			continue
		}
		at, end := y(float64(w.rows-1-row))+w.offset, x(figure)
		if w.least != nil && w.least[row] < w.largest[row] {
			from := x(w.least[row])
			end = min(x(w.largest[row]), c.Max.X)
			c.StrokeLine2(style, from, at, end, at)
			for _, tip := range []vg.Length{from, end} {
				c.StrokeLine2(style, tip, at-2, tip, at+2)
			}
		}
		c.FillText(letters, vg.Point{X: end + 4, Y: at}, label(figure))
	}
}

func label(figure float64) string {
	if figure >= 100 {
		return result.Grouped(figure)
	}
	return fmt.Sprintf("%.2f", figure)
}

// paint draws the plot for screens that have two dots where a page has one.
func paint(p *plot.Plot, height vg.Length) ([]byte, error) {
	const dpi = 192
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(p.BackgroundColor))}
	p.Draw(draw.Crop(draw.New(canvas), 20, -48, 12, -12))
	var picture bytes.Buffer
	_, err := canvas.WriteTo(&picture)
	return picture.Bytes(), err
}
