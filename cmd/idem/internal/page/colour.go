package page

// Dim returns text in the style of secondary information.
func (p *Page) Dim(text string) string { return p.paint("2", text) }

// Bold returns text in bold.
func (p *Page) Bold(text string) string { return p.paint("1", text) }

// Red returns text in the color of a failure.
func (p *Page) Red(text string) string { return p.paint("31", text) }

// Yellow returns text in the color of a warning.
func (p *Page) Yellow(text string) string { return p.paint("33", text) }

// Green returns text in the color of success.
func (p *Page) Green(text string) string { return p.paint("32", text) }

// paint wraps text in an escape sequence, unless the page has no color.
func (p *Page) paint(code, text string) string {
	if !p.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
